"""`AllocatorClient`: for `async` code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import httpx

from mig_spawner.errors import AllocatorUnavailable
from mig_spawner.wire.availability import Availability, Ticket
from mig_spawner.wire.client import verb
from mig_spawner.wire.client.answer import Lost, Reply
from mig_spawner.wire.client.connection import DEFAULT_TIMEOUT_S, reply_of, settings
from mig_spawner.wire.client.flow import Flow, Pause, Peer, Send
from mig_spawner.wire.client.patience import Patience
from mig_spawner.wire.client.stream import listener
from mig_spawner.wire.event import Event
from mig_spawner.wire.lease import LeaseDocument, LeaseExtension, LeaseList, LeaseRelease, LeaseRequest
from mig_spawner.wire.menu.seen import SeenMenu
from mig_spawner.wire.node import DesiredNode, NodeReport
from mig_spawner.wire.queue import ExplainDocument, LeaseChange, QueueDocument
from mig_spawner.wire.quota import QuotaList, Usage, UsageKey
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeList, ReshapeRejection

R = TypeVar("R")


class AllocatorClient:
    """Calls the allocator. Safe to share between tasks of one event loop; close it when done.

    Args:
        url: where the API lives, with the service prefix: `http://mig-allocator:8080/services/mig`.
        token: sent as a bearer token; it never appears in `repr` or errors.
        timeout_s: for one answer, on top of what a long poll waits for.
        patience: how often a call that got no answer is made again; `ONCE` for callers with a rule of their own.
        ca_file: certificates to trust instead of the usual ones, for `https:`.
        transport: for tests.

    Every method raises `AllocatorUnavailable` when there is no usable answer, and `AllocatorRefused` when the answer is no.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience | None = None,
        ca_file: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._peer = Peer.at(self.url, timeout_s, patience or Patience())
        self._http = httpx.AsyncClient(transport=transport, **settings(self.url, token, timeout_s, ca_file))

    def __repr__(self) -> str:
        return f"AllocatorClient({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def availability(self, *, without: str | None = None) -> Availability:
        """What is free now; with `without`, a `lease_id`, as if that one did not wait: what its holder could have instead."""
        return await self._run(verb.availability(self._peer, without))

    async def menu(self, *, user: str | None = None, groups: Sequence[str] = ()) -> SeenMenu:
        """What the caller may have; with `user`, for the hub and admins, what that user may, being in these groups."""
        return await self._run(verb.menu(self._peer, user, groups))

    async def quotas(self, *, user: str | None = None, groups: Sequence[str] = ()) -> QuotaList:
        """What is left for the caller; with `user`, for the hub and admins, for that user, being in these groups."""
        return await self._run(verb.quotas(self._peer, user, groups))

    async def usage(
        self, *, by: UsageKey = UsageKey.PERSON, window_s: int = 30 * 86400, user: str | None = None
    ) -> Usage:
        """Who used how much within the last so many seconds. A person sees their own."""
        return await self._run(verb.usage(self._peer, by, window_s, user))

    async def ticket(self, user_name: str) -> Ticket:
        """A ticket for one person's browser. For the hub only."""
        return await self._run(verb.ticket(self._peer, user_name))

    async def acquire(self, request: LeaseRequest, *, wait_s: float = 0) -> LeaseDocument:
        """The holder's lease: a new one, or the one it already has.

        Args:
            wait_s: answer at once when the lease is Ready or ended, otherwise after so many seconds with the state it then has.
        """
        return await self._run(verb.acquire(self._peer, request, wait_s))

    async def lease(self, lease_id: str, *, wait_s: float = 0, known: LeaseDocument | None = None) -> LeaseDocument:
        """Read a lease.

        Args:
            wait_s: answer as soon as state or queue position differ from `known` (or, without it, when the lease is Ready or
                ended), at the latest after so many seconds.
        """
        return await self._run(verb.lease(self._peer, lease_id, wait_s, known))

    async def leases(self, *, user_id: str | None = None, server_name: str | None = None) -> LeaseList:
        """The open leases, of all holders or of one; however many pages they take."""
        return await self._run(verb.leases(self._peer, user_id, server_name))

    async def change(self, lease_id: str, wanted: LeaseChange) -> LeaseDocument:
        """Change what a lease waits for. It keeps its time of arrival, and may be granted at once."""
        return await self._run(verb.change(self._peer, lease_id, wanted))

    async def claim(self, lease_id: str) -> LeaseDocument:
        """The holder is back: what is ready for it does not pass on to the next."""
        return await self._run(verb.claim(self._peer, lease_id))

    async def queue(self) -> QueueDocument:
        """Who waits, next first, and why; however many pages they take."""
        return await self._run(verb.queue(self._peer))

    async def explain(self, lease_id: str) -> ExplainDocument:
        """Why a lease is where it is, or why it waits."""
        return await self._run(verb.explain(self._peer, lease_id))

    async def renew(self, lease_id: str) -> LeaseDocument:
        """Confirm a Ready lease (it becomes Active), or the heartbeat of an Active one."""
        return await self._run(verb.renew(self._peer, lease_id))

    async def extend(self, lease_id: str, extension: LeaseExtension) -> LeaseDocument:
        """Keep a lease for longer, as far as menu and quotas allow."""
        return await self._run(verb.extend(self._peer, lease_id, extension))

    async def learn_device(self, lease_id: str, device_uuid: str) -> LeaseDocument:
        """Where the node picks the device: this one it gave to the pod of a lease. For the hub only."""
        return await self._run(verb.learn_device(self._peer, lease_id, device_uuid))

    async def release(self, lease_id: str, release: LeaseRelease) -> LeaseDocument:
        """Give a lease back. Doing it twice does no harm; the answer says what it still waits for."""
        return await self._run(verb.release(self._peer, lease_id, release))

    async def release_holder(self, user_id: str, server_name: str, release: LeaseRelease) -> LeaseList:
        """Give back whatever open lease a holder has; for callers that do not know its id."""
        return await self._run(verb.release_holder(self._peer, user_id, server_name, release))

    async def report(self, node: str, report: NodeReport) -> DesiredNode:
        """Tell what a node looks like; learn what it should look like."""
        return await self._run(verb.report(self._peer, node, report))

    async def desired(self, node: str, *, known: int, wait_s: float) -> DesiredNode:
        """What a node should look like, as soon as its generation differs from `known`, at the latest after `wait_s` seconds."""
        return await self._run(verb.desired(self._peer, node, known, wait_s))

    async def reshapes(self) -> ReshapeList:
        """Proposals to cut idle partitions anew; for admins."""
        return await self._run(verb.reshapes(self._peer))

    async def reshape(self, reshape_id: str) -> ReshapeDocument:
        """One proposal, and why it could not be applied now."""
        return await self._run(verb.reshape(self._peer, reshape_id))

    async def approve(self, reshape_id: str, approval: ReshapeApproval) -> ReshapeDocument:
        """Say yes to a proposal, for now or for a time."""
        return await self._run(verb.approve(self._peer, reshape_id, approval))

    async def reject(self, reshape_id: str, rejection: ReshapeRejection) -> ReshapeDocument:
        """Say no to a proposal, or take back one that holds."""
        return await self._run(verb.reject(self._peer, reshape_id, rejection))

    async def events(
        self,
        *,
        user_id: str | None = None,
        server_name: str | None = None,
        kinds: tuple[str, ...] = (),
        after: int | None = None,
    ) -> AsyncIterator[Event]:
        """What happens, as it happens; without end. A stream that ends is taken up where it ended.

        Args:
            user_id, server_name: only the leases of one holder.
            kinds: only these kinds: those of `EventKind`, and `availability`; all of them if empty.
            after: the number of the last event that was seen, to miss none; None for what happens from now on.

        Raises:
            AllocatorUnavailable: it could not be reached several times in a row. Call again with the last number to go on.
        """
        ear = listener(self._peer, user_id, server_name, kinds, after)
        while True:
            lost: Lost | AllocatorUnavailable | None = None
            try:
                async with self._http.stream(
                    "GET", "events", params=ear.query, headers=ear.headers, timeout=ear.timeout
                ) as response:
                    if response.status_code != 200:
                        await response.aread()
                        ear.refused(reply_of(response))
                    ear.opened()
                    async for chunk in response.aiter_bytes():
                        for event in ear.feed(chunk):
                            yield event
            except httpx.HTTPError as error:
                lost = Lost(error)
            except AllocatorUnavailable as error:
                lost = error
            await asyncio.sleep(ear.ended(lost))

    async def _run(self, flow: Flow[R]) -> R:
        reply: Reply | Lost | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: R = end.value
                return result
            match step:
                case Send():
                    reply = await self._send(step)
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                    reply = None

    async def _send(self, send: Send) -> Reply | Lost:
        try:
            response = await self._http.request(
                send.call.method,
                send.call.path,
                params=send.params,
                content=send.content,
                headers=send.headers,
                timeout=send.timeout_s,
            )
        except httpx.HTTPError as error:
            return Lost(error)
        return reply_of(response)
