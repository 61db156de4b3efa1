"""Why a lease is where it is, and what the policy thinks of the other places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.pool import pools_of
from mig_spawner.allocator.queue.board import Outlooks
from mig_spawner.allocator.queue.view import Queue, Viewer, entry, queue_of, why_waiting
from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.gpu import Layout
from mig_spawner.domain.lease import Closed, Lease, Queued
from mig_spawner.domain.policy import stranded
from mig_spawner.domain.queue import Board, Outlook, Spot, Start, could_serve
from mig_spawner.domain.sentence import counted
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.pool import PoolDocument
from mig_spawner.wire.queue import CandidateDocument, ExplainDocument, QueueEntry, StepDocument

SHOWN: Final = 20
"""So many candidates and people ahead are shown."""


def explain(ledger: Ledger, lease: Lease, document: LeaseDocument, viewer: Viewer) -> ExplainDocument:
    """All there is to say about where a lease is."""
    queue = queue_of(ledger)
    steps = ledger.tx.audit(lease.lease_id)
    return ExplainDocument(
        lease=document,
        why=why_waiting(ledger, queue, lease) if isinstance(lease, Queued) else document.detail,
        policy=ledger.setting.policy,
        candidates=() if isinstance(lease, Closed) else tuple(_candidates(ledger, lease, queue)),
        pools=() if isinstance(lease, Closed) else _pools(ledger, lease),
        ahead=_ahead(ledger, lease, queue, viewer),
        history=tuple(StepDocument(at=row.at, before=row.before, after=row.after, why=row.why) for row in steps),
    )


def _pools(ledger: Ledger, lease: Lease) -> tuple[PoolDocument, ...]:
    states = (state for state in ledger.fleet if lease.node in (None, state.node))
    return pools_of(ledger, (state for state in states if could_serve(state, lease.choices)))


def _ahead(ledger: Ledger, lease: Lease, queue: Queue, viewer: Viewer) -> tuple[QueueEntry, ...]:
    position = queue.position(lease.lease_id)
    first = max(position - SHOWN, 1)
    return tuple(entry(ledger, queue, number, viewer) for number in range(first, position))


def _candidates(ledger: Ledger, lease: Lease, queue: Queue) -> Sequence[CandidateDocument]:
    found = sorted(_places(ledger, lease), key=lambda place: (place[0], place[1], place[2]))
    documents = [
        _candidate(ledger, lease, queue, outlook, spot, start, choice) for start, choice, _, outlook, spot in found
    ]
    documents.sort(
        key=lambda c: (not c.chosen, not c.free, c.choice, c.unknown, c.starts or ledger.now, c.rank or (0, 0))
    )
    return documents[:SHOWN]


def _places(ledger: Ledger, lease: Lease) -> Iterator[tuple[Start, int, int, Outlook, Spot]]:
    """The best place of every GPU for each choice, as if this lease had none; and the place that it has."""
    mine = None if isinstance(lease, Queued) or lease.grant is None else lease.grant
    apart = ledger.setting.keep_apart
    for number, outlook in enumerate(Outlooks(ledger).values()):
        here = mine is not None and mine.placement.gpu_uuid == outlook.state.gpu.gpu_uuid
        seen = _without(outlook, lease) if here else outlook
        for choice, request in enumerate(lease.choices):
            if here and mine is not None and mine.choice == choice:
                profile = None if mine.profile is None else seen.state.gpu.profile(mine.profile)
                device = None if mine.cut or profile is None else _device_at(seen.state, mine.placement.start)
                yield Start(0, ledger.now), choice, number, seen, Spot(mine.placement, profile, device)
                continue
            shut = seen.apart(apart, lease.groups) is not None
            decision = None if shut else Board((seen,), ledger.ranking, ledger.now).choose(request)
            if decision is not None:
                yield Start(0, ledger.now), choice, number, seen, _spot(decision)
            elif (found := seen.seen_by(apart, lease.groups).earliest((request,))) is not None:
                yield found[0], choice, number, seen, found[1]


def _spot(decision: Decision) -> Spot:
    return Spot(decision.placement, decision.profile, None if decision.cut else decision.device_uuid)


def _device_at(state: GPUState, start: int) -> str | None:
    return next((d.device_uuid for d in state.devices if d.placement.start == start), None)


def _without(outlook: Outlook, lease: Lease) -> Outlook:
    """The GPU as if this lease were not on it."""
    if isinstance(lease, Queued) or lease.grant is None:
        return outlook
    grant, state = lease.grant, outlook.state
    if not grant.cut and grant.profile_id is not None:
        return outlook
    mask = state.gpu.whole.mask if grant.profile_id is None else grant.placement.mask
    stays = tuple(stay for stay in outlook.stays if stay.mask != mask)
    layout = Layout(state.gpu, state.layout.mask & ~mask)
    for stay in stays:
        layout = Layout(state.gpu, layout.mask, layout.engines + stay.engines)
    freed = GPUState(
        state.node, state.gpu, layout, state.devices, state.dynamic, state.mig_enabled, state.unavailable, state.busy
    )
    return Outlook(freed, outlook.now, stays)


def _candidate(
    ledger: Ledger, lease: Lease, queue: Queue, outlook: Outlook, spot: Spot, start: Start, choice: int
) -> CandidateDocument:
    state, place, profile = outlook.state, spot.placement, spot.profile
    mine = None if isinstance(lease, Queued) or lease.grant is None else lease.grant
    chosen = mine is not None and mine.placement == place
    free = chosen or (start == Start(0, ledger.now) and state.unavailable is None)
    shut = None if chosen else outlook.apart(ledger.setting.keep_apart, lease.groups)
    verdict = _verdict(queue, lease, place.gpu_uuid, start, chosen=chosen, free=free)
    if lease.node not in (None, state.node):
        verdict = f"It is wanted on node {lease.node} alone."
    elif shut is not None:
        verdict = f"Somebody of the group {shut} is on it, and the groups are kept apart."
    ranked = profile is not None and spot.device_uuid is None and free
    rank = ledger.ranking(state.layout, profile, place.start) if ranked and profile is not None else None
    return CandidateDocument(
        node=state.node,
        gpu_uuid=place.gpu_uuid,
        profile=None if profile is None else str(profile.name),
        start=place.start,
        size=place.size,
        choice=choice,
        chosen=chosen,
        free=free,
        rank=None if rank is None else (rank[0], rank[1]),
        starts=None if start.unknown else start.at,
        unknown=start.unknown,
        verdict=verdict,
        fragmentation=lost.sentence if not free and (lost := stranded(state, ledger.demand)) is not None else "",
    )


def _verdict(queue: Queue, lease: Lease, gpu_uuid: str, start: Start, *, chosen: bool, free: bool) -> str:
    if chosen:
        return "It is here."
    holder = queue.line.board.earmarks.get(gpu_uuid)
    if holder is not None:
        if holder == lease.lease_id:
            return "It is being emptied for this lease."
        return f"It is being emptied for number {queue.position(holder)}, who has waited too long."
    if isinstance(lease, (Queued,)) and gpu_uuid in lease.avoid:
        return "It is avoided: an earlier grant there could not be made, or used."
    if not free:
        if start.unknown:
            return f"In the way: {counted(start.unknown, 'lease')} without an agreed end."
        return f"What is in the way is expected to be gone at {start.at:%H:%M} UTC."
    if queue.line.guards.kept_on(gpu_uuid):
        return "Free, and kept for somebody ahead."
    return "Free."
