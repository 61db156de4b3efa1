"""`SyncAllocatorClient`: for code that blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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


class SyncAllocatorClient:
    """As `AllocatorClient`, argument by argument and method by method, but every method blocks. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        patience: Patience | None = None,
        ca_file: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._peer = Peer.at(self.url, timeout_s, patience or Patience())
        self._http = httpx.Client(transport=transport, **settings(self.url, token, timeout_s, ca_file))

    def __repr__(self) -> str:
        return f"SyncAllocatorClient({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def availability(self, *, without: str | None = None) -> Availability:
        return self._run(verb.availability(self._peer, without))

    def menu(self, *, user: str | None = None, groups: Sequence[str] = ()) -> SeenMenu:
        """What the caller may have; with `user`, for the hub and admins, what that user may, being in these groups."""
        return self._run(verb.menu(self._peer, user, groups))

    def quotas(self, *, user: str | None = None, groups: Sequence[str] = ()) -> QuotaList:
        """What is left for the caller; with `user`, for the hub and admins, for that user, being in these groups."""
        return self._run(verb.quotas(self._peer, user, groups))

    def usage(self, *, by: UsageKey = UsageKey.PERSON, window_s: int = 30 * 86400, user: str | None = None) -> Usage:
        """Who used how much within the last so many seconds. A person sees their own."""
        return self._run(verb.usage(self._peer, by, window_s, user))

    def ticket(self, user_name: str) -> Ticket:
        return self._run(verb.ticket(self._peer, user_name))

    def acquire(self, request: LeaseRequest, *, wait_s: float = 0) -> LeaseDocument:
        return self._run(verb.acquire(self._peer, request, wait_s))

    def lease(self, lease_id: str, *, wait_s: float = 0, known: LeaseDocument | None = None) -> LeaseDocument:
        return self._run(verb.lease(self._peer, lease_id, wait_s, known))

    def leases(self, *, user_id: str | None = None, server_name: str | None = None) -> LeaseList:
        return self._run(verb.leases(self._peer, user_id, server_name))

    def change(self, lease_id: str, wanted: LeaseChange) -> LeaseDocument:
        return self._run(verb.change(self._peer, lease_id, wanted))

    def claim(self, lease_id: str) -> LeaseDocument:
        return self._run(verb.claim(self._peer, lease_id))

    def queue(self) -> QueueDocument:
        return self._run(verb.queue(self._peer))

    def explain(self, lease_id: str) -> ExplainDocument:
        return self._run(verb.explain(self._peer, lease_id))

    def renew(self, lease_id: str) -> LeaseDocument:
        return self._run(verb.renew(self._peer, lease_id))

    def extend(self, lease_id: str, extension: LeaseExtension) -> LeaseDocument:
        return self._run(verb.extend(self._peer, lease_id, extension))

    def learn_device(self, lease_id: str, device_uuid: str) -> LeaseDocument:
        return self._run(verb.learn_device(self._peer, lease_id, device_uuid))

    def release(self, lease_id: str, release: LeaseRelease) -> LeaseDocument:
        return self._run(verb.release(self._peer, lease_id, release))

    def release_holder(self, user_id: str, server_name: str, release: LeaseRelease) -> LeaseList:
        return self._run(verb.release_holder(self._peer, user_id, server_name, release))

    def report(self, node: str, report: NodeReport) -> DesiredNode:
        return self._run(verb.report(self._peer, node, report))

    def desired(self, node: str, *, known: int, wait_s: float) -> DesiredNode:
        return self._run(verb.desired(self._peer, node, known, wait_s))

    def reshapes(self) -> ReshapeList:
        return self._run(verb.reshapes(self._peer))

    def reshape(self, reshape_id: str) -> ReshapeDocument:
        return self._run(verb.reshape(self._peer, reshape_id))

    def approve(self, reshape_id: str, approval: ReshapeApproval) -> ReshapeDocument:
        return self._run(verb.approve(self._peer, reshape_id, approval))

    def reject(self, reshape_id: str, rejection: ReshapeRejection) -> ReshapeDocument:
        return self._run(verb.reject(self._peer, reshape_id, rejection))

    def events(
        self,
        *,
        user_id: str | None = None,
        server_name: str | None = None,
        kinds: tuple[str, ...] = (),
        after: int | None = None,
    ) -> Iterator[Event]:
        ear = listener(self._peer, user_id, server_name, kinds, after)
        while True:
            lost: Lost | AllocatorUnavailable | None = None
            try:
                with self._http.stream(
                    "GET", "events", params=ear.query, headers=ear.headers, timeout=ear.timeout
                ) as response:
                    if response.status_code != 200:
                        response.read()
                        ear.refused(reply_of(response))
                    ear.opened()
                    for chunk in response.iter_bytes():
                        yield from ear.feed(chunk)
            except httpx.HTTPError as error:
                lost = Lost(error)
            except AllocatorUnavailable as error:
                lost = error
            time.sleep(ear.ended(lost))

    def _run(self, flow: Flow[R]) -> R:
        reply: Reply | Lost | None = None
        while True:
            try:
                step = flow.send(reply)
            except StopIteration as end:
                result: R = end.value
                return result
            match step:
                case Send():
                    reply = self._send(step)
                case Pause(seconds):
                    time.sleep(seconds)
                    reply = None

    def _send(self, send: Send) -> Reply | Lost:
        try:
            response = self._http.request(
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
