"""A lease as the hub keeps it: ask, wait in line, renew, give back. The allocator's ledger is the truth, this is a cache of it.

An allocator that is away never ends anything by itself: a start waits on while its time lasts, and a running server keeps its slice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from mig_spawner.domain.lease import EndReason, Holder, PodFate
from mig_spawner.domain.request import Request
from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.spawner.background import in_background
from mig_spawner.spawner.error import invalid, refusing
from mig_spawner.spawner.progress import Progress, say_lease
from mig_spawner.spawner.refusal import refuse, refuse_ended, refuse_former, refuse_late, refuse_unavailable
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseDocument, LeaseRelease, LeaseRequest, LeaseState, ways_of
from mig_spawner.wire.menu import MenuEntry
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.queue import LeaseChange

LONG_POLL_S: Final = 15.0
"""One question while waiting; short enough for any proxy between."""
OUTAGE_S: Final = 8.0
"""How long an allocator may be away at the first question before a start is refused."""
CUT_S: Final = 120.0
"""How long making the device may take after a placement was granted."""
GRACE_S: Final = 5.0
"""How much later than the allocator we give up, so that its answer is heard first."""
RENEW_S: Final = 60.0
"""At most so often is a lease renewed, seconds."""
Log = logging.Logger | logging.LoggerAdapter[Any]

_NO_MORE: Final = "This server waits in line no more, so nothing can be changed."
_HELD = (LeaseState.READY, LeaseState.ACTIVE)
_ENDED = (LeaseState.RELEASING, LeaseState.CLOSED)


@dataclass(frozen=True)
class Debt:
    """A lease that has to be given back.

    Attributes:
        lease_id: None where only the holder is known.
        pending: a question that was under way when its start was cancelled; its answer may be a lease that nobody knows.
    """

    client: Callable[[], AllocatorClient]
    holder: Holder
    lease_id: str | None
    pending: asyncio.Task[LeaseDocument] | None
    log: Log

    async def pay(self, release: LeaseRelease) -> tuple[LeaseDocument, ...]:
        """Give it back once; doing it again does no harm. The answer is what the allocator says of it, if it still knows it.

        Raises:
            AllocatorUnavailable: nobody heard it.
        """
        if self.pending is not None:
            await asyncio.wait([self.pending])
        client, holder = self.client(), self.holder
        try:
            if self.lease_id is not None and self.pending is None:
                return (await client.release(self.lease_id, release),)
            return (await client.release_holder(holder.user_id, holder.server_name, release)).leases
        except AllocatorRefused as error:
            if error.code in {ProblemCode.NOT_FOUND, ProblemCode.CONFLICT}:
                return ()  # it has ended already
            self.log.warning("The allocator refuses to take back the lease of %s: %s", holder, error)
            raise AllocatorUnavailable(str(error)) from error


class LeaseKeeper:
    """The lease of one server.

    Args:
        client: gives the client to talk through; asked anew each time, since a token may change.
        holder: who it is for.
        log: the spawner's.

    Attributes:
        lease: as last heard; None before the first answer and after `forget`.
        lost: the lease that has ended although the server runs; `over` is the same until something is asked for again.
        asked: something was asked for in this life of the hub, so there may be a lease even where none is known.
    """

    def __init__(
        self,
        client: Callable[[], AllocatorClient],
        holder: Callable[[], Holder],
        log: Log,
    ) -> None:
        self._client = client
        self._holder = holder
        self._log = log
        self._pending: asyncio.Task[LeaseDocument] | None = None
        self._renewed_at = float("-inf")
        self._renewing: asyncio.Task[None] | None = None
        self._warned = False
        self._change = asyncio.Lock()
        self._without = False
        self._body: LeaseRequest | None = None
        self.lease: LeaseDocument | None = None
        self.lease_id: str | None = None
        self.lost: LeaseDocument | None = None
        self.over: LeaseDocument | None = None
        self.asked = False

    def forget(self) -> None:
        """A new start, or the end of one: nothing is known any more."""
        self.lease = self.lost = None
        self.lease_id = None
        self.asked = False
        self._pending = None
        self._renewed_at = float("-inf")

    def adopt(self, lease_id: str) -> None:
        """Take up a lease that a pod or the hub's database tells of."""
        if self.lease_id != lease_id:
            self.lease_id, self.lease = lease_id, None

    async def acquire(
        self,
        request: Request,
        progress: Progress,
        *,
        budget_s: float,
        duration_s: float | None,
        avoid_nodes: tuple[str, ...] = (),
        choice: str = "",
        groups: tuple[str, ...] = (),
        may_wait: Callable[[], None] = lambda: None,
        end_former: Callable[[], Awaitable[None]] | None = None,
        picked_by_node: bool = False,
    ) -> LeaseDocument | None:
        """Ask and wait until the device is there; None if whoever waits wants to go on without one, see `change`.

        Args:
            budget_s: how long to wait in line; being cut comes on top.
            avoid_nodes: where it must not be.
            choice: the id of the menu's entry, by which the allocator decides.
            groups: of the holder, at the hub.
            may_wait: called when it comes to waiting; refuses if too many wait.
            end_former: ends a pod that still lives on a lease of before.
            picked_by_node: a device plugin picks the device, see `learn_device`.

        Raises:
            SpawnRefused: with a sentence and a reason. Cancelling is always possible and awaits nothing.
        """
        about = {
            "wait_budget": budget_s,
            "avoid_nodes": avoid_nodes,
            "groups": groups,
            "picked_by_node": picked_by_node,
        }
        self._body = self._asking(request, duration=duration_s, choice=choice, **about)
        wait = _Wait(budget_s)
        self._without = False
        while True:
            async with self._change:  # what is being changed is heard first
                if self._without:
                    self.lease = self.lease_id = None
                    return None
            try:
                lease = await self._ask(self._body, wait)
            except AllocatorUnavailable as error:
                if not wait.may_go_on:
                    refuse_unavailable(error)
                progress.say("The GPU allocator does not answer, still waiting.", 5)
                await wait.pause()
                continue
            except AllocatorRefused as error:
                wait.answered()
                if error.code == ProblemCode.NOT_FOUND and self.lease is not None:
                    self.lease = self.lease_id = None  # the ledger lost it: ask as if for the first time
                    continue
                if error.code != ProblemCode.CONFLICT:
                    refuse(error)
                await self._outwait_former(wait, progress, end_former)
                continue
            if self._change.locked() or self._without:
                continue
            if wait.first and self._is_former(lease):
                wait.answered()
                await self._outwait_former(wait, progress, end_former)
                continue
            self.lease, self.lease_id = lease, lease.lease_id
            wait.heard(lease)
            if lease.state in _HELD and lease.device_uuid is not None:
                say_lease(progress, lease)
                return lease
            if lease.state in _ENDED:
                refuse_ended(lease, budget_s)
            if wait.first and lease.state is LeaseState.QUEUED:
                may_wait()
            say_lease(progress, lease)
            wait.first = False
            if not wait.may_go_on:
                refuse_late(lease, budget_s)

    def _asking(self, request: Request, **about: Any) -> LeaseRequest:
        with refusing():
            body = LeaseRequest.of(request, self._holder())
        return body.model_copy(update=about)

    @property
    def waits(self) -> bool:
        """It stands in line."""
        return self.lease is not None and self.lease.state is LeaseState.QUEUED and not self._without

    async def change(self, entry: MenuEntry) -> None:
        """Ask for something else and keep the place in line, or leave it and go on without a GPU: `acquire` hears of it.

        Raises:
            SpawnRefused: it stands in line no more, or the allocator does not hear it, or says no. Then it waits on as before.
        """
        async with self._change:
            lease, body = self.lease, self._body
            if lease is None or body is None or not self.waits:
                raise invalid(_NO_MORE)
            try:
                if entry.request is None:
                    self._without = True
                    await self._leave(lease.lease_id)
                    return
                self.lease = await self._client().change(lease.lease_id, _change_to(entry.request, entry))
            except AllocatorUnavailable as error:
                self._without = False
                refuse_unavailable(error)
            except AllocatorRefused as error:
                if error.code in {ProblemCode.CONFLICT, ProblemCode.NOT_FOUND}:
                    raise invalid(_NO_MORE) from error
                refuse(error)
            kept = {name: getattr(body, name) for name in ("wait_budget", "avoid_nodes", "groups", "picked_by_node")}
            self._body = self._asking(entry.request, duration=entry.duration, choice=entry.id, **kept)

    async def _leave(self, lease_id: str) -> None:
        try:
            await self._client().release(lease_id, LeaseRelease(reason=EndReason.CANCELLED, pod=PodFate.NONE))
        except AllocatorRefused as error:
            self._log.info("The lease %s had ended already when it was to be changed: %s", lease_id, error)

    async def learn_device(self, device_uuid: str) -> None:
        """Its node gave the pod this device. Raises what the client raises."""
        if (lease_id := self.lease_id) is not None:
            lease = await self._client().learn_device(lease_id, device_uuid)
            if self.lease_id == lease_id:
                self.lease = lease

    def debt(self) -> Debt:
        """What has to be given back, to be settled even after this keeper has forgotten it."""
        return Debt(self._client, self._holder(), self.lease_id, self._pending, self._log)

    def renew_soon(self, *, force: bool = False) -> None:
        """Renew in the background, at most once per `RENEW_S` unless forced. Failures change nothing.

        What it learns is in `lost`: a lease that has ended although the server runs.
        """
        now = time.monotonic()
        if self.lease_id is None or not self.idle:
            return
        if force or now - self._renewed_at >= RENEW_S:
            self._renewed_at = now
            self._renewing = in_background(self._renew(self.lease_id), f"mig-renew-{self.lease_id}")

    @property
    def idle(self) -> bool:
        """No renewal is under way."""
        return self._renewing is None or self._renewing.done()

    async def _renew(self, lease_id: str) -> None:
        try:
            lease = await self._client().renew(lease_id)
        except AllocatorUnavailable:
            return
        except AllocatorRefused as error:
            found = await self._read(lease_id) if error.code == ProblemCode.CONFLICT else None
            if found is None:
                # Unknown is not ended: a fault of ours never ends somebody's work.
                if not self._warned:
                    self._log.warning("The lease %s could not be renewed: %s", lease_id, error)
                self._warned = True
                return
            lease = found
        if self.lease_id != lease_id:
            return
        self._warned = False
        self.lease = lease
        if lease.state in _ENDED:
            self.lost = self.over = lease

    async def _read(self, lease_id: str) -> LeaseDocument | None:
        try:
            return await self._client().lease(lease_id)
        except (AllocatorUnavailable, AllocatorRefused):
            return None

    async def _ask(self, body: LeaseRequest, wait: _Wait) -> LeaseDocument:
        if self.lease is not None:
            return await self._client().lease(
                self.lease.lease_id, wait_s=max(min(LONG_POLL_S, wait.left), 0), known=self.lease
            )
        self.asked, self.over = True, None
        self._pending = asyncio.get_running_loop().create_task(self._client().acquire(body))
        self._pending.add_done_callback(_looked_at)
        # Shielded: a question under way is heard to its end, so that what it was given can be given back.
        lease = await asyncio.shield(self._pending)
        self._pending = None
        return lease

    def _is_former(self, lease: LeaseDocument) -> bool:
        """The first answer is no lease of this start: it is on its way out, or a pod has taken it already, or it is somebody else's
        whose number this user has got from a hub that lost its database.
        """
        other = lease.holder.user_name != self._holder().user_name
        return other or lease.state in {LeaseState.ACTIVE, LeaseState.RELEASING}

    async def _outwait_former(self, wait: _Wait, progress: Progress, end: Callable[[], Awaitable[None]] | None) -> None:
        if not wait.may_go_on:
            refuse_former()
        progress.say("The slice of your last server is still being given back.", 5)
        if not wait.former_ended:
            wait.former_ended = True
            await self._end_former()
            if end is not None:
                await end()
        await wait.pause()

    async def _end_former(self) -> None:
        """Whatever this server had before, it has no more: its start has begun anew."""
        holder = self._holder()
        try:
            await self._client().release_holder(
                holder.user_id, holder.server_name, LeaseRelease(reason=EndReason.CANCELLED)
            )
        except (AllocatorUnavailable, AllocatorRefused) as error:
            self._log.warning("The former lease of %s could not be ended: %s", holder, error)


def _change_to(request: Request, entry: MenuEntry) -> LeaseChange:
    """To wait for this entry instead; how long it may wait stays as it was."""
    ways = ways_of(request) or {"whole": True}
    return LeaseChange(**ways, choice=entry.id, duration=entry.duration, alternatives=())


class _Wait:
    """How long one start may still wait.

    Attributes:
        first: no lease of this start was seen yet.
        former_ended: what this server had before has been ended.
    """

    def __init__(self, budget_s: float) -> None:
        self._began = time.monotonic()
        self._until = self._began + budget_s + GRACE_S
        self._answered = False
        self._granted = False
        self._pause_s = 0.25
        self.first = True
        self.former_ended = False

    def answered(self) -> None:
        self._answered = True

    def heard(self, lease: LeaseDocument) -> None:
        self.answered()
        self._pause_s = 0.25
        if lease.state is LeaseState.GRANTED and not self._granted:
            self._granted = True
            self._until = max(self._until, time.monotonic() + CUT_S)

    @property
    def left(self) -> float:
        return self._until - time.monotonic()

    @property
    def may_go_on(self) -> bool:
        """After the first answer for as long as the budget lasts; before it, only through a short outage."""
        if self._answered:
            return self.left > 0
        return time.monotonic() - self._began < OUTAGE_S

    async def pause(self) -> None:
        await asyncio.sleep(min(self._pause_s, max(self.left, 0.05)))
        self._pause_s = min(self._pause_s * 2, 2.0)


def _looked_at(task: asyncio.Task[LeaseDocument]) -> None:
    """Keep asyncio from complaining about an answer that came after a cancellation."""
    if not task.cancelled():
        task.exception()
