"""Rules by which people wait: in strict order, or as the allocator's queue lets them pass.

Who may pass whom, what is kept for whom and whose GPU is earmarked is not said here: `mig_spawner.domain.queue` is asked, as the
allocator asks it. Here a run is only told in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.lease import Holder, Queued
from mig_spawner.domain.queue import STARVATION_AFTER, Board, Line, Memory, Outlook, earmark_heads
from mig_spawner.domain.queue.outlook import stay_of
from mig_spawner.planning.quota import FAR, moment
from mig_spawner.planning.simulation import Waiter
from mig_spawner.planning.stage import Stage


class InOrder:
    """Who came first is served first, whatever stands idle meanwhile."""

    waits = True

    def serve(
        self, stage: Stage, waiting: Sequence[Waiter], now: float, allowed: Callable[[Waiter], bool]
    ) -> Iterator[tuple[Waiter, Decision]]:
        del now
        for waiter in waiting:
            if not allowed(waiter):
                continue
            decision = stage.choose(waiter.arrival.request, waiter.arrival.groups)
            if decision is None:
                return
            yield waiter, decision


class Queue:
    """The allocator's queue: others pass where that makes nobody ahead begin later, and who starves has a GPU earmarked."""

    waits = True

    def __init__(self, *, agreed: bool, starvation_after: timedelta = STARVATION_AFTER) -> None:
        """`agreed`: everybody says how long he stays; otherwise nobody does."""
        self._agreed = agreed
        self._starvation_after = starvation_after
        self._memory = Memory()
        self._leases: dict[int, Queued] = {}

    def serve(
        self, stage: Stage, waiting: Sequence[Waiter], now: float, allowed: Callable[[Waiter], bool]
    ) -> Iterator[tuple[Waiter, Decision]]:
        at = moment(now)
        self._leases = {w.number: self._leases.get(w.number) or self._lease(w) for w in waiting}
        self._earmark(stage, [w.number for w in waiting if allowed(w)], at)
        if not stage.has_room:
            return
        earmarks = self._earmarks()
        if len(waiting) == 1 and not earmarks:
            # Alone in line: there is nobody to be held back by.
            first = waiting[0].arrival
            decision = stage.choose(first.request, first.groups) if allowed(waiting[0]) else None
            if decision is not None:
                yield waiting[0], decision
            return
        waiters = {self._leases[waiter.number].lease_id: waiter for waiter in waiting}
        board = Board(
            self._outlooks(stage, at),
            stage.ranking,
            at,
            memory=self._memory,
            earmarks=earmarks,
            apart=stage.apart,
        )
        for turn in Line(board).serve(self._leases[w.number] for w in waiting if allowed(w)):
            yield waiters[turn.lease.lease_id], turn.decision

    def _lease(self, waiter: Waiter) -> Queued:
        arrival, name = waiter.arrival, f"{waiter.number}"
        return Queued(
            lease_id=name,
            holder=Holder(arrival.holder or name),
            request=arrival.request,
            queued_at=moment(arrival.at),
            duration_s=arrival.duration if self._agreed and arrival.duration < FAR else None,
            groups=arrival.groups,
        )

    def _outlooks(self, stage: Stage, now: datetime) -> list[Outlook]:
        return [
            Outlook(state, now, tuple(stay_of(h.decision, self._end(h.until), h.groups) for h in stage.held(uuid)))
            for uuid, state in stage.states.items()
        ]

    def _end(self, until: float) -> datetime | None:
        return moment(until) if self._agreed and until < FAR else None

    def _earmark(self, stage: Stage, numbers: Sequence[int], now: datetime) -> None:
        """As the allocator's timer does. Nothing is placed between two events, so it is early enough at the next one."""
        leases = [self._leases[number] for number in numbers]
        starved = [lease for lease in leases if now - lease.queued_at >= self._starvation_after]

        def outlooks(lease: Queued) -> list[Outlook]:
            return [outlook.seen_by(stage.apart, lease.groups) for outlook in self._outlooks(stage, now)]

        for lease, gpu_uuid in earmark_heads(starved, self._earmarks(), stage.states, outlooks):
            self._leases[int(lease.lease_id)] = replace(lease, earmark=gpu_uuid)

    def _earmarks(self) -> dict[str, str]:
        return {lease.earmark: lease.lease_id for lease in self._leases.values() if lease.earmark is not None}
