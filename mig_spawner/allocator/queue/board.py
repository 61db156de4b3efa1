"""From the ledger to the board of one pass: every GPU with what is on it, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from types import MappingProxyType

from mig_spawner.allocator.kept.census import Census, kind_of
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.quota.check import over_quota, within_quota
from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Engines
from mig_spawner.domain.lease import Releasing
from mig_spawner.domain.queue import Board, Line, Outlook, Stay


def board_of(ledger: Ledger) -> Board:
    """The fleet as it is now."""
    return Board(
        Outlooks(ledger),
        ledger.ranking,
        ledger.now,
        memory=ledger.memory,
        earmarks=ledger.tx.earmarks(),
        apart=ledger.setting.keep_apart,
        index=ledger.index(),
    )


def line_of(ledger: Ledger) -> Line:
    """A pass over the queue that has not begun."""
    return Line(
        board_of(ledger),
        settle_after=ledger.setting.settle_after,
        allows=lambda lease, decision: not over_quota(ledger, lease, decision),
    )


class Outlooks(Mapping[str, Outlook]):
    """Every GPU with what is on it, and until when, by `gpu_uuid`: looked at when asked for.

    Args:
        end: until when a lease holds what it holds; as agreed if it is not given.
        instead: GPUs, by `gpu_uuid`, as they would be.
    """

    def __init__(
        self,
        ledger: Ledger,
        end: Callable[[Holding], datetime | None] | None = None,
        instead: Mapping[str, GPUState] = MappingProxyType({}),
    ) -> None:
        self._instead = instead
        self._ledger = ledger
        self._states = ledger.kept.states
        self._ends = end or (lambda lease: agreed_end(ledger, lease))
        self._seen: dict[str, Outlook] = {}

    def __getitem__(self, gpu_uuid: str) -> Outlook:
        found = self._seen.get(gpu_uuid)
        if found is None:
            if gpu_uuid in self._ledger.broken:
                raise KeyError(gpu_uuid)
            found = self._seen[gpu_uuid] = self._look(self._instead.get(gpu_uuid) or self._states[gpu_uuid])
        return found

    def __iter__(self) -> Iterator[str]:
        return (state.gpu.gpu_uuid for state in self._ledger.fleet)

    def __len__(self) -> int:
        return len(self._states) - len(self._ledger.broken)

    def _look(self, state: GPUState) -> Outlook:
        facts, now, uuid = self._ledger.facts, self._ledger.now, state.gpu.gpu_uuid
        stays = [_stay(state, lease, self._ends(lease)) for lease in facts.leases_on(uuid)]
        stays += [Stay(remnant.placement.mask, until=now) for remnant in facts.remnants_on(uuid)]
        return Outlook(state, now, tuple(stays))


def _stay(state: GPUState, lease: Holding, until: datetime | None) -> Stay:
    grant = lease.grant
    profile = None if grant.profile_id is None else state.gpu.profile_by_id(grant.profile_id)
    mask = state.gpu.whole.mask if grant.profile_id is None else grant.placement.mask
    engines = Engines() if profile is None else profile.engines
    return Stay(mask, engines, until, frees=grant.cut or grant.profile_id is None, groups=lease.groups)


def agreed_end(ledger: Ledger, lease: Holding) -> datetime | None:
    """When what a lease holds is expected to be free again by what was agreed; None if nothing was."""
    settle_after = ledger.setting.settle_after
    if isinstance(lease, Releasing):
        return max(lease.releasing_at + settle_after, ledger.now)
    expires_at = lease.grant.expires_at
    return None if expires_at is None else max(expires_at + settle_after, ledger.now)


def left_over(ledger: Ledger, without: str = "") -> list[tuple[GPUState, int]]:
    """What somebody who came now could be placed on, all that is not kept for those who wait: one GPU of each kind, and how many.

    Args:
        without: a lease for which nothing is kept but what is earmarked.
    """
    if not ledger.tx.queue_length():
        return ledger.kinds
    line = line_of(ledger)
    with closing(ledger.tx.queue()) as queue:
        for _ in line.serve(within_quota(ledger, (lease for lease in queue if lease.lease_id != without))):
            pass
    board, guards = line.board, line.guards
    apart = {*board.granted, *board.earmarks, *guards.places, *guards.avoided}
    left = Census(outlook.state for uuid in apart if (outlook := board.before(uuid)) is not None)
    alone = {kind_of(state): count for state, count in left}
    found = [(state, count - alone.get(kind_of(state), 0)) for state, count in ledger.kinds]
    kept = [(state, count) for state, count in found if count and not guards.keeps_all(Outlook(state, ledger.now))]
    for uuid in apart:
        outlook = board.outlook(uuid)
        if outlook is not None and uuid not in board.earmarks and not guards.keeps_all(outlook):
            kept.append((_without_kept(outlook, guards.kept_on(uuid)), 1))
    return kept


def _without_kept(outlook: Outlook, kept: list[Stay]) -> GPUState:
    state = outlook.state
    for stay in kept:
        state = state.without(stay.mask, stay.engines)
    return state
