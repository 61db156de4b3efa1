"""Finding proposals: a cut of idle partitions by which somebody begins earlier, and nobody later.

What it would do is asked of the forecasts of the queue, once with the GPU as it is and once with the GPU as it would be.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.queue.forecasts import foreseen
from mig_spawner.allocator.quota.check import within_quota
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.queue import Memory
from mig_spawner.domain.queue.forecast import FORESEEN, Forecast
from mig_spawner.domain.reshape import Cut, Effect, Piece, Place, Reshape, ReshapeState, after, cut_for

TRIED: Final = 4
"""So many cuts are tried in one look, the most useful first: each costs a forecast of the line."""
NOTICED_S: Final = 60.0
"""Nobody is said to begin earlier for less."""

Forecasts = Mapping[str, Forecast | None]


def proposals(ledger: Ledger) -> list[Reshape]:
    """New proposals for those who wait and whom no open one serves already, at most one."""
    waiting = _waiting(ledger)
    if not waiting:
        return []
    before: Forecasts | None = None
    for state, cut in islice(_cuts(ledger, waiting), TRIED):
        if before is None:
            before = foreseen(ledger, (Memory(), Memory()))
        changed = after(state, cut)
        then = foreseen(ledger, (Memory(), Memory()), instead={cut.gpu_uuid: changed})
        found = _effect(waiting, before, then, ledger.now)
        if found is not None:
            lease, effect = found
            return [_reshape(ledger, state, cut, changed, lease, effect)]
    return []


def _waiting(ledger: Ledger) -> list[Queued]:
    """The first in line, without those for whom something has been proposed."""
    if not ledger.tx.queue_length():
        return []
    promised: Counter[str] = Counter()
    for reshape in ledger.tx.open_reshapes():
        if reshape.state in (ReshapeState.PROPOSED, ReshapeState.APPROVED, ReshapeState.APPLYING):
            promised[reshape.asked] += reshape.effect.people
    found = []
    with closing(ledger.tx.queue()) as queue:
        for lease in islice(within_quota(ledger, queue), FORESEEN):
            asked = str(lease.request)
            if promised[asked]:
                promised[asked] -= 1
            else:
                found.append(lease)
    return found


def _cuts(ledger: Ledger, waiting: Sequence[Queued]) -> Iterator[tuple[GPUState, Cut]]:
    """What could be cut anew, what serves the most in front."""
    spoken = {reshape.gpu_uuid for reshape in ledger.tx.open_reshapes()} | ledger.tx.earmarks().keys()
    found: list[tuple[int, int, int, GPUState, Cut]] = []
    for number, state in enumerate(ledger.fleet):
        uuid = state.gpu.gpu_uuid
        if uuid in spoken or state.unavailable is not None:
            continue
        document = ledger.reported_gpu(state.node, uuid)
        if document is None or not document.reshapable:
            continue
        cut = cut_for(state, (w.choices for w in waiting if uuid not in w.avoid and w.node in (None, state.node)))
        if cut is not None and _keeps_all_profiles(ledger, state, cut):
            gone = sum(piece.profile.size for piece in cut.remove)
            found.append((-cut.serves, gone, number, state, cut))
    for *_, state, cut in sorted(found, key=lambda one: one[:3]):
        yield state, cut


def _keeps_all_profiles(ledger: Ledger, state: GPUState, cut: Cut) -> bool:
    """Whether every profile can be had somewhere afterwards: what nobody waits for now may be asked for tomorrow."""
    changed = after(state, cut)
    return all(
        changed.total(name) or any(other.total(name) for other in ledger.fleet if other is not state)
        for name in {piece.profile.name for piece in cut.remove}
    )


def _effect(
    waiting: Sequence[Queued], before: Forecasts, then: Forecasts, now: datetime
) -> tuple[Queued, Effect] | None:
    """What a cut does, and for whom first; None if nobody gains, or somebody loses."""
    gaining: list[tuple[Queued, float | None, float]] = []
    waits = {lease.lease_id: lease for lease in waiting}
    for lease_id in before.keys() | then.keys():
        old, new = _wait(before.get(lease_id), now), _wait(then.get(lease_id), now)
        if old is not None and (new is None or new > old + 1):
            return None
        if new is not None and (old is None or old - new >= NOTICED_S) and lease_id in waits:
            gaining.append((waits[lease_id], old, new))
    if not gaining:
        return None
    order = [lease.lease_id for lease in waiting]
    lease, old, new = min(gaining, key=lambda one: order.index(one[0].lease_id))
    return lease, Effect(old, new, len(gaining))


def _wait(forecast: Forecast | None, now: datetime) -> float | None:
    """The middle of the range, in seconds from now; None if nobody can tell."""
    if forecast is None or forecast.latest is None:
        return None
    early, late = (forecast.earliest - now).total_seconds(), (forecast.latest - now).total_seconds()
    return max((early + late) / 2, 0.0)


def _reshape(ledger: Ledger, state: GPUState, cut: Cut, changed: GPUState, lease: Queued, effect: Effect) -> Reshape:
    return Reshape(
        reshape_id=secrets.token_hex(6),
        node=state.node,
        gpu_uuid=cut.gpu_uuid,
        state=ReshapeState.PROPOSED,
        proposed_at=ledger.now,
        changed_at=ledger.now,
        remove=tuple(map(_place, cut.remove)),
        make=tuple(map(_place, cut.make)),
        before=_partitions(state),
        after=_partitions(changed),
        standing=not state.dynamic,
        asked=str(lease.request),
        effect=effect,
    )


def _place(piece: Piece) -> Place:
    profile = piece.profile
    return Place(str(profile.name), profile.profile_id, piece.start, profile.size)


def _partitions(state: GPUState) -> tuple[str, ...]:
    devices = sorted(state.devices, key=lambda device: device.placement.start)
    return tuple(f"{device.profile.name}@{device.placement.start}" for device in devices)
