"""Who waits is not pushed back by those who pass: a guard says no to a grant that would make somebody start later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.queue.board import Board
from mig_spawner.domain.queue.outlook import NO_ENGINES, Outlook, Spot, Start, Stay, could_serve

LOOKAHEAD: Final = 16
"""So many who wait have a place of their own kept; for those behind them everything that could ever serve them is kept."""


class Guard:
    """Keeps the place where one lease that waits is expected to begin first.

    Attributes:
        kept: when it is expected to begin, and where; None while no GPU could ever serve it.
    """

    def __init__(self, lease: Queued, settle_after: timedelta) -> None:
        self.lease = lease
        self.kept: tuple[Start, Spot] | None = None
        self._settle_after = settle_after

    @property
    def stay(self) -> Stay | None:
        """What is kept, as something on its GPU."""
        if self.kept is None:
            return None
        start, spot = self.kept
        duration = self.lease.duration_s
        known = duration is not None and not start.unknown
        until = start.at + timedelta(seconds=duration or 0) + self._settle_after if known else None
        device = spot.device_uuid is not None
        engines = NO_ENGINES if spot.profile is None or device else spot.profile.engines
        return Stay(spot.placement.mask, engines, until, frees=not device, groups=self.lease.groups)

    @property
    def gpu_uuid(self) -> str | None:
        return None if self.kept is None else self.kept[1].placement.gpu_uuid


class Guards:
    """The guards of one pass, in the order of the line."""

    def __init__(self, board: Board, settle_after: timedelta, *, lookahead: int = LOOKAHEAD) -> None:
        self._board = board
        self._lookahead = lookahead
        self._settle_after = settle_after
        self._given_up: list[str] = []
        self._near: list[Guard] = []
        self._far: dict[tuple[object, ...], Queued] = {}

    def add(self, lease: Queued) -> Guard:
        """Guard a lease that could not be served, behind all that are guarded already."""
        guard = Guard(lease, self._settle_after)
        if len(self._near) < self._lookahead:
            self._near.append(guard)
            self._seek(guard)
        else:
            self._far.setdefault((lease.choices, lease.avoid), lease)
        return guard

    def look(self, lease: Queued) -> Guard:
        """Where somebody would begin who came now, behind all that are guarded already. It is not guarded itself."""
        guard = Guard(lease, self._settle_after)
        self._seek(guard)
        return guard

    def given_up(self) -> list[str]:
        """The GPUs on which something is not kept any more, since this was last asked."""
        given_up, self._given_up = self._given_up, []
        return given_up

    @property
    def near(self) -> Sequence[Guard]:
        return self._near

    def refusing(
        self, decision: Decision, until: datetime | None, groups: frozenset[str] = frozenset()
    ) -> Queued | None:
        """Whose start a grant to somebody with these groups would push back; None if nobody's, so that it may be made.

        A grant on a GPU that turns out to be better for somebody than what is kept for him is refused, and that is kept instead.
        """
        gpu_uuid = decision.gpu.gpu_uuid
        outlook = self._board.outlook(gpu_uuid)
        if outlook is None:
            return None
        for lease in self._far.values():
            if gpu_uuid not in lease.avoid and could_serve(outlook.state, lease.choices):
                return lease
        for guard in self._near:
            if self._refuses(guard, outlook, decision, until, groups):
                return guard.lease
        return None

    def _refuses(
        self, guard: Guard, outlook: Outlook, decision: Decision, until: datetime | None, groups: frozenset[str]
    ) -> bool:
        gpu_uuid = decision.gpu.gpu_uuid
        if gpu_uuid in guard.lease.avoid:
            return False
        before = outlook.keeping(*self._kept(gpu_uuid, ahead_of=guard))
        kept = guard.kept
        if kept is None or guard.gpu_uuid != gpu_uuid:
            found = self._seen(before, guard).earliest(guard.lease.choices)
            if found is None or (kept is not None and kept[0] <= found[0]):
                return False
            if guard.gpu_uuid is not None:
                self._given_up.append(guard.gpu_uuid)
            guard.kept = kept = found
            self._seek_again(behind=guard)
        start, spot = kept
        after = self._seen(before.granting(decision, until, groups), guard).start_at(spot)
        return after is None or after > start

    def _seen(self, outlook: Outlook, guard: Guard) -> Outlook:
        """A GPU for a lease that is guarded: who is kept apart from it is in its way."""
        return outlook.seen_by(self._board.apart, guard.lease.groups) if self._board.apart else outlook

    def _kept(self, gpu_uuid: str, *, ahead_of: Guard) -> list[Stay]:
        kept = []
        for guard in self._near:
            if guard is ahead_of:
                break
            if guard.gpu_uuid == gpu_uuid and guard.stay is not None:
                kept.append(guard.stay)
        return kept

    def kept_on(self, gpu_uuid: str) -> list[Stay]:
        """All that is kept on a GPU."""
        return [guard.stay for guard in self._near if guard.gpu_uuid == gpu_uuid and guard.stay is not None]

    def keeps_all(self, outlook: Outlook) -> bool:
        """Whether a GPU as a whole is kept for those farther back."""
        return any(
            outlook.state.gpu.gpu_uuid not in lease.avoid and could_serve(outlook.state, lease.choices)
            for lease in self._far.values()
        )

    @property
    def places(self) -> set[str]:
        """The GPUs on which something is kept."""
        return {guard.gpu_uuid for guard in self._near if guard.gpu_uuid is not None}

    @property
    def avoided(self) -> set[str]:
        """The GPUs that somebody avoids of whom `keeps_all` speaks: there it may be otherwise than on others of their kind."""
        return {gpu_uuid for lease in self._far.values() for gpu_uuid in lease.avoid}

    def _seek(self, guard: Guard) -> None:
        """Keep the place where it is expected to begin first, those ahead of it being kept theirs."""
        lease = guard.lease
        guard.kept = None
        first = self._board.first(lease.choices)
        for start, outlook in (*first, *self._earmarked(lease, first)):
            if guard.kept is not None and start is not None and guard.kept[0] <= start:
                continue  # what is kept for others only makes it later
            gpu_uuid = outlook.state.gpu.gpu_uuid
            if gpu_uuid in lease.avoid:
                continue
            if self._board.earmarks.get(gpu_uuid, lease.lease_id) != lease.lease_id:
                continue
            before = outlook.keeping(*self._kept(gpu_uuid, ahead_of=guard))
            found = self._seen(before, guard).earliest(lease.choices)
            if found is not None and (guard.kept is None or found[0] < guard.kept[0]):
                guard.kept = found

    def _earmarked(
        self, lease: Queued, first: Sequence[tuple[Start, Outlook]]
    ) -> Sequence[tuple[Start | None, Outlook]]:
        """The GPU that is kept for a lease, if it is not among the first."""
        uuid = lease.earmark
        if uuid is None or any(outlook.state.gpu.gpu_uuid == uuid for _, outlook in first):
            return ()
        outlook = self._board.outlook(uuid)
        return () if outlook is None else ((None, outlook),)

    def _seek_again(self, *, behind: Guard) -> None:
        """Somebody ahead is kept another place: those behind who are kept one on the same GPU look again."""
        moved = behind.gpu_uuid
        for guard in self._near[self._near.index(behind) + 1 :]:
            if moved is not None and guard.gpu_uuid == moved:
                self._given_up.append(moved)
                self._seek(guard)
