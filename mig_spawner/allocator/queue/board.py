"""From the ledger to the board of one pass: every GPU with what is on it, and until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from datetime import datetime

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
        outlooks_of(ledger),
        ledger.ranking,
        ledger.now,
        memory=ledger.memory,
        earmarks=ledger.tx.earmarks(),
        apart=ledger.setting.keep_apart,
    )


def line_of(ledger: Ledger) -> Line:
    """A pass over the queue that has not begun."""
    return Line(
        board_of(ledger),
        settle_after=ledger.setting.settle_after,
        allows=lambda lease, decision: not over_quota(ledger, lease, decision),
    )


def outlooks_of(ledger: Ledger, end: Callable[[Holding], datetime | None] | None = None) -> list[Outlook]:
    """Every GPU with what is on it, and until when: as agreed, or as `end` says."""
    ends = end or (lambda lease: agreed_end(ledger, lease))
    on_it: dict[str, list[Holding]] = defaultdict(list)
    for lease in ledger.holding.values():
        on_it[lease.grant.placement.gpu_uuid].append(lease)
    left: dict[str, list[Stay]] = defaultdict(list)
    for remnant in ledger.remnants:
        left[remnant.placement.gpu_uuid].append(Stay(remnant.placement.mask, until=ledger.now))
    return [
        Outlook(
            state,
            ledger.now,
            (*(_stay(state, lease, ends(lease)) for lease in on_it[uuid]), *left[uuid])
            if uuid in on_it or uuid in left
            else (),
        )
        for state in ledger.fleet
        for uuid in (state.gpu.gpu_uuid,)
    ]


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


def left_over(ledger: Ledger) -> list[GPUState]:
    """What somebody who came now could be placed on: all that is not kept for those who wait."""
    if not ledger.tx.queue_length():
        return list(ledger.fleet)
    line = line_of(ledger)
    with closing(ledger.tx.queue()) as queue:
        for _ in line.serve(within_quota(ledger, queue)):
            pass
    return [
        _without_kept(outlook, line.guards.kept_on(outlook.state.gpu.gpu_uuid))
        for outlook in line.board.outlooks()
        if outlook.state.gpu.gpu_uuid not in line.board.earmarks and not line.guards.keeps_all(outlook)
    ]


def _without_kept(outlook: Outlook, kept: list[Stay]) -> GPUState:
    state = outlook.state
    for stay in kept:
        state = state.without(stay.mask, stay.engines)
    return state
