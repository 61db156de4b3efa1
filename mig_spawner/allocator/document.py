"""The ledger as JSON documents, with the sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from mig_spawner.allocator.bound import failed_on
from mig_spawner.allocator.ending import waits_for
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.outlook import with_line
from mig_spawner.allocator.queue.board import left_over
from mig_spawner.allocator.quota.check import waits_for_quota
from mig_spawner.allocator.quota.use import Use
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.allocator.store.codec import grant_of, state_of
from mig_spawner.domain.fleet import GPUState, profile_names
from mig_spawner.domain.lease import (
    Active,
    Closed,
    EndReason,
    Grant,
    Granted,
    Lease,
    Pick,
    Queued,
    Ready,
    Releasing,
)
from mig_spawner.domain.policy import Demand, stranded
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MIB_PER_GIB
from mig_spawner.domain.sentence import counted
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.base import Answer, profile_text
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseState, PlacementDocument, ended_text
from mig_spawner.wire.node import GPUDocument, StepFailure, UsageDocument
from mig_spawner.wire.pool import PoolDocument

Kinds = Sequence[tuple[GPUState, int]]
"""One GPU of each kind, and how many there are."""


def lease_document(ledger: Ledger, lease: Lease) -> LeaseDocument:
    """A lease as anybody who may see it sees it."""
    position, queue_length = ledger.tx.queue_place(lease.lease_id) if isinstance(lease, Queued) else (None, None)
    grant = grant_of(lease)
    starts_between, cannot_tell = None, None
    if isinstance(lease, Queued) and ledger.forecasts is not None:
        starts_between, cannot_tell = ledger.forecasts.start(ledger, lease, position or 0)
    return LeaseDocument(
        lease_id=lease.lease_id,
        holder=HolderDocument(
            user_id=lease.holder.user_id, server_name=lease.holder.server_name, user_name=lease.holder.user_name
        ),
        state=LeaseState(state_of(lease)),
        asked=str(lease.request),
        alternatives=tuple(str(request) for request in lease.alternatives),
        priority=lease.priority,
        choice=lease.choice,
        queued_at=lease.queued_at,
        placement=None if grant is None else _placement(grant),
        device_uuid=None if isinstance(lease, (Queued, Granted)) else lease.device_uuid,
        device_known=lease.pick is not Pick.NODE,
        granted_choice=None if grant is None else grant.choice,
        position=position,
        queue_length=queue_length,
        starts_between=starts_between,
        cannot_tell=cannot_tell,
        unattended=lease.unattended,
        claim_until=claim_until(ledger, lease),
        reason=lease.reason if isinstance(lease, (Releasing, Closed)) else None,
        message=lease.message if isinstance(lease, (Releasing, Closed)) else "",
        detail=_detail(ledger, lease, position, queue_length),
        gpu_seconds=lease.gpu_seconds if isinstance(lease, Closed) else None,
        peak_memory_mib=lease.peak_memory_mib,
    )


def claim_until(ledger: Ledger, lease: Lease) -> datetime | None:
    """Until when something is offered to a holder who has left; None if nothing is, or nobody has."""
    return lease.ready_at + ledger.setting.claim_window if isinstance(lease, Ready) and lease.unattended else None


def _placement(grant: Grant) -> PlacementDocument:
    return PlacementDocument(
        node=grant.node,
        gpu_uuid=grant.placement.gpu_uuid,
        model=grant.model,
        start=grant.placement.start,
        size=grant.placement.size,
        profile=profile_text(grant.profile),
        memory_mib=grant.memory_mib,
        multiprocessors=grant.multiprocessors,
        share=grant.share,
        generation=grant.generation,
        granted_at=grant.granted_at,
        expires_at=grant.expires_at,
        cut=grant.cut,
    )


def _detail(ledger: Ledger, lease: Lease, position: int | None, queue_length: int | None) -> str:
    match lease:
        case Queued(avoid=avoid):
            line = f"Waits for {lease.request}: number {position} of {queue_length} in the queue."
            if quota := waits_for_quota(Use(ledger, waiting=False), lease):
                return f"{line} It is passed over: {quota}"
            if lease.node is not None:
                line += f" It is wanted on node {lease.node} alone."
            failed = failed_on(ledger, lease) if avoid else 0
            if not failed:
                return line
            after = ledger.setting.retry_after.total_seconds()
            return (
                f"{line} It could not be made on {counted(failed, 'GPU')}, or not used there, so others are tried first; "
                f"if none can serve it, the same ones again after {after:.0f} s."
            )
        case Granted(grant=grant):
            return f"Its slice is being made on node {grant.node}."
        case Ready(grant=grant):
            until = claim_until(ledger, lease)
            if until is not None:
                return f"Its slice is ready. Claim it by {until:%H:%M} UTC, or it passes on to the next."
            return f"Its slice on node {grant.node} is ready for its server."
        case Active(grant=grant):
            return f"In use on node {grant.node}."
        case Releasing(reason=reason, message=message):
            waits = waits_for(ledger, lease)
            forced = f"{ended_text(reason, message)} " if reason is EndReason.FORCED else ""
            return f"{forced}Being released. It waits: {'; '.join(waits)}." if waits else f"{forced}Being released."
        case Closed(reason=reason, message=message):
            return ended_text(reason, message)


def availability(ledger: Ledger, without: str = "") -> Availability:
    """What somebody who came now could be given at once, and what there is in all; as if the lease `without` did not wait."""
    fleet, free = ledger.kinds, left_over(ledger, without)
    offers = [_offer(name, fleet, free) for name in profile_names([state for state, _ in fleet])]
    if any(state.can_be_whole for state, _ in fleet):
        offers.append(_whole_offer(fleet, free))
    if not all(offer.free for offer in offers):
        offers = list(with_line(ledger, offers, without))
    return Availability(
        as_of=ledger.now,
        offers=tuple(offers),
        queue_length=ledger.tx.queue_length(),
        nodes=len(ledger.nodes),
        nodes_silent=len(ledger.kept.silent),
        simulated=bool(ledger.facts.simulated),
    )


def _offer(name: ProfileName, fleet: Kinds, free: Kinds) -> OfferDocument:
    profiles = [
        (state, profile)
        for state, _ in fleet
        for profile in (*(d.profile for d in state.devices), *state.gpu.profiles)
        if profile.name == name
    ]
    states = [state for state, _ in profiles]
    count = sum(state.free(name) * number for state, number in free)
    return OfferDocument(
        profile=str(name),
        free=count,
        total=sum(state.total(name) * number for state, number in fleet),
        memory_gb=name.memory_gb,
        memory_mib=min(profile.memory_mib for _, profile in profiles),
        multiprocessors=min(profile.multiprocessors for _, profile in profiles),
        multiprocessors_total=min(state.gpu.multiprocessors for state in states),
        share=min(profile.size / state.gpu.grid for state, profile in profiles),
        models=tuple(sorted({state.gpu.model for state in states})),
        reason="" if count else _reason(states, sum(state.free(name) for state, _ in fleet)),
    )


def _whole_offer(fleet: Kinds, free: Kinds) -> OfferDocument:
    states = [state for state, _ in fleet if state.can_be_whole]
    count = sum(number for state, number in free if state.whole_free)
    return OfferDocument(
        profile=None,
        free=count,
        total=sum(number for state, number in fleet if state.can_be_whole),
        memory_gb=min(round(state.gpu.memory_mib / MIB_PER_GIB) for state in states),
        memory_mib=min(state.gpu.memory_mib for state in states),
        multiprocessors=min(state.gpu.multiprocessors for state in states),
        multiprocessors_total=min(state.gpu.multiprocessors for state in states),
        share=1.0,
        models=tuple(sorted({state.gpu.model for state in states})),
        reason="" if count else _reason(states, sum(state.whole_free for state, _ in fleet)),
    )


def _reason(states: Sequence[GPUState], free_but_waited_for: int) -> str:
    """Why nothing is free, for the person who wanted it."""
    if free_but_waited_for:
        return "others are waiting for it"
    troubles = [state.unavailable for state in states if state.unavailable is not None]
    if troubles and len(troubles) == len(states):
        return f"not available now: {min(troubles)}"
    if any(0 < state.layout.taken < state.gpu.grid for state in states if state.cuttable_when_empty):
        return "not enough is free on one GPU"
    return "all in use"


class GPUSummary(Answer):
    """A GPU on the page of nodes. `taken` and `grid` count memory slices; `unavailable` says why nothing is granted on it.

    Attributes:
        stranded: the part of the GPU that is free and of no use for the next request, as expected, 0 to 1; null where nothing is cut.
        fragmentation: what is free and yet does not fit, as a sentence; empty if nothing is lost.
    """

    gpu_uuid: str
    model: str
    mig_enabled: bool | None
    dynamic: bool
    health: str
    grid: int
    taken: int
    unavailable: str | None
    stranded: float | None = None
    fragmentation: str = ""


class NodeDocument(Answer):
    """A node as an admin sees it.

    Attributes:
        generation: of what it should look like; `applied_generation` the last one it has applied.
        remnants: instances of ended leases that it has still to destroy.
        problem: why nothing is granted on the whole node, as its agent says; empty if that is well.
        usage: what its devices used when it last reported.
    """

    node: str
    reported_at: datetime | None
    silent: bool
    cordoned: bool
    simulated: bool
    agent_version: str
    problem: str
    generation: int
    applied_generation: int
    remnants: int
    gpus: tuple[GPUSummary, ...]
    failures: tuple[StepFailure, ...]
    usage: tuple[UsageDocument, ...] = ()


class NodeList(Answer):
    """Nodes by name.

    Attributes:
        pools: all pools, whichever nodes are on this page.
        next: the `cursor` of the page that follows; None when there is none.
    """

    nodes: tuple[NodeDocument, ...]
    pools: tuple[PoolDocument, ...] = ()
    next: str | None = None


def node_document(ledger: Ledger, node: NodeRecord) -> NodeDocument:
    """What is known of a node."""
    report = node.report
    states = {state.gpu.gpu_uuid: state for state in ledger.gpus_of(node.name)}
    return NodeDocument(
        node=node.name,
        reported_at=node.reported_at,
        silent=ledger.is_silent(node),
        cordoned=node.cordoned,
        simulated=report is not None and report.simulated,
        agent_version="" if report is None else report.agent_version,
        problem="" if report is None else report.problem,
        generation=node.desired.generation,
        applied_generation=0 if report is None else report.applied_generation,
        remnants=len(ledger.facts.remnants_of(node.name)),
        gpus=tuple(_summary(gpu, states.get(gpu.gpu_uuid), ledger.demand) for gpu in (report.gpus if report else ())),
        failures=report.failures if report is not None else (),
        usage=ledger.usage_of(node.name),
    )


def _summary(gpu: GPUDocument, state: GPUState | None, demand: Demand) -> GPUSummary:
    lost = None if state is None else stranded(state, demand)
    return GPUSummary(
        gpu_uuid=gpu.gpu_uuid,
        model=gpu.model,
        mig_enabled=gpu.mig_enabled,
        dynamic=gpu.dynamic,
        health=gpu.health.value,
        grid=gpu.to_domain().grid,
        taken=0 if state is None else state.layout.taken,
        unavailable="another node has it" if state is None else state.unavailable,
        stranded=None if lost is None else round(lost.part, 4),
        fragmentation="" if lost is None else lost.sentence,
    )


def age(since: datetime | None, now: datetime) -> timedelta:
    """How long ago; zero for never."""
    return timedelta(0) if since is None else max(now - since, timedelta(0))
