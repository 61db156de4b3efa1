"""Who in the queue is served next.

In order: the greatest priority first, within one priority who came first. Each gets the first of its choices that can be had now.
Who cannot be served keeps its place in line and a guard: those behind it are served as well, but only where that does not make it
start later. A GPU that is earmarked for somebody is given to nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.policy import concerned
from mig_spawner.domain.queue.board import Board
from mig_spawner.domain.queue.guard import Guards
from mig_spawner.domain.request import Request

TRIES: Final = 24
"""So many GPUs are tried for a request of which each would push somebody back; then it waits."""


Allows = Callable[[Queued, Decision], bool]


@dataclass(frozen=True, slots=True)
class Turn:
    """Somebody who is served now.

    Attributes:
        choice: which of its choices: 0 the main one.
    """

    lease: Queued
    decision: Decision
    choice: int


class Line:
    """One pass over the queue.

    Attributes:
        held_back: who was not served although something was free, with the one ahead whose start that would have pushed back.
    """

    def __init__(self, board: Board, *, settle_after: timedelta = timedelta(0), allows: Allows | None = None) -> None:
        """A pass that has not begun.

        Args:
            settle_after: how long after its end a lease may still be in the way.
            allows: the last word on a grant. Who is refused by it is passed over and guards nothing: nothing free is missing.
        """
        self._allows = allows or (lambda lease, decision: True)
        self.board = board
        self.guards = Guards(board, settle_after)
        self.held_back: dict[str, Queued] = {}
        self._settle_after = settle_after
        self._hopeless: dict[tuple[object, ...], Queued | None] = {}

    def serve(self, queue: Iterable[Queued]) -> Iterator[Turn]:
        """Go along the queue until nothing is left that could be granted. Each turn is on the board when it is given out."""
        earmarks = len(self.board.earmarks)
        for lease in queue:
            if not earmarks and not self.board.has_room:
                return
            earmarks -= lease.earmark is not None
            turn = self.turn(lease)
            if turn is not None:
                yield turn

    def turn(self, lease: Queued) -> Turn | None:
        """Serve one who comes behind all that were asked before, or guard it."""
        kind = (lease.choices, lease.avoid, lease.duration_s, concerned(self.board.apart, lease.groups))
        if lease.earmark is not None or kind not in self._hopeless:
            refused = False
            for number, request in enumerate(lease.choices):
                decision = self._decide(lease, request)
                if decision is not None and self._allows(lease, decision):
                    self.board.grant(decision, self.until(lease), lease.groups)
                    return Turn(lease, decision, number)
                refused |= decision is not None
            if refused:
                return None
            self._hopeless[kind] = self.held_back.get(lease.lease_id)
        elif (ahead := self._hopeless[kind]) is not None:
            self.held_back[lease.lease_id] = ahead
        self.guards.add(lease)
        return None

    def until(self, lease: Queued) -> datetime | None:
        """Until when a grant now would be in the way; None if no end is agreed."""
        if lease.duration_s is None:
            return None
        return self.board.now + timedelta(seconds=lease.duration_s) + self._settle_after

    def _decide(self, lease: Queued, request: Request) -> Decision | None:
        shut = {*lease.avoid, *self.board.forbidden(lease.groups)}
        if lease.earmark is not None and lease.earmark not in shut:
            decision = self.board.choose_on(request, lease.earmark)
            if decision is not None:
                return decision
        hidden = [gpu_uuid for gpu_uuid in sorted(shut) if self.board.hide(gpu_uuid)]
        try:
            for _ in range(TRIES):
                decision = self.board.choose(request)
                if decision is None:
                    return None
                harmless = self._harmless(lease, decision)
                if harmless is not None:
                    return harmless
                if self.board.hide(decision.gpu.gpu_uuid):
                    hidden.append(decision.gpu.gpu_uuid)
                for gpu_uuid in self.guards.given_up():
                    if gpu_uuid in hidden and gpu_uuid not in shut:
                        hidden.remove(gpu_uuid)
                        self.board.show(gpu_uuid)
            return None
        finally:
            for gpu_uuid in hidden:
                self.board.show(gpu_uuid)

    def _harmless(self, lease: Queued, decision: Decision) -> Decision | None:
        for place in self.board.places(decision):
            ahead = self.guards.refusing(place, self.until(lease), lease.groups)
            if ahead is None:
                return place
            self.held_back.setdefault(lease.lease_id, ahead)
        return None
