"""A ledger that was lost, or is an old copy, learns from the pods again what they live on.

A pod that names a lease which the ledger does not know is believed when the report of its node shows the same device at the same
place. Until then, and if it never does, the pod is an orphan: what it names stays out of everybody's reach, it is counted, and it
says why it has no lease. Of two pods that name the same memory slices the first one to be seen has them; the other stays an orphan.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from mig_spawner.allocator.claim import Claim
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.store.base import Pod
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import Placement, Profile
from mig_spawner.domain.lease import Active, Closed, Granted, Lease, Pick, Queued, Ready
from mig_spawner.domain.request import SliceRequest, WholeRequest
from mig_spawner.errors import StoreError
from mig_spawner.wire.node import GPUDocument

log = logging.getLogger(__name__)

OLDEST: Final = timedelta(days=366)
"""A lease cannot have been granted longer ago than the longest duration that can be asked for."""
NOTHING_UNCLEAR: Final[Mapping[str, str]] = MappingProxyType({})


class _OrphanError(Exception):
    """Why a pod cannot have its lease back, as a sentence, and the lease that stands in its way, if one does."""

    def __init__(self, why: str, in_the_way: Lease | None = None) -> None:
        super().__init__(why)
        self.in_the_way = in_the_way


def take_up(ledger: Ledger, unclear: Mapping[str, str] = NOTHING_UNCLEAR) -> None:
    """Give every pod whose lease the ledger does not know its lease back, or keep why not.

    Args:
        unclear: of pods that were seen just now, by uid, why what they say cannot be read.
    """
    for pod in sorted(ledger.orphans, key=lambda pod: (pod.since, pod.uid)):
        # The second of two pods with one lease has nothing to be given back.
        if pod.lease_id not in ledger.holding and (pod.claim is not None or pod.uid in unclear):
            try:
                _take_up(ledger, pod, unclear.get(pod.uid, ""))
            except _OrphanError as orphan:
                _leave(ledger, pod, str(orphan), orphan.in_the_way)


def _take_up(ledger: Ledger, pod: Pod, unclear: str) -> None:
    lease, claim = ledger.tx.lease(pod.lease_id), pod.claim
    if isinstance(lease, Closed):
        raise _OrphanError("its lease has ended")
    if claim is None:
        raise _OrphanError(unclear)
    claim = _given(ledger, pod, claim)
    decision = _shown(ledger, claim)
    queued = _queued(ledger, pod, claim, lease)
    decision = _free(ledger, claim, decision)
    why = f"rebuilt from pod {pod.namespace}/{pod.name}: {claim}"
    *_, active = path = _path(ledger, claim, queued, decision)
    steps: list[Lease] = [*path]
    try:
        if lease is None:
            ledger.restore(active, why)
        else:
            for before, after in pairwise(steps):
                ledger.move(before, after, why)
    except StoreError as error:
        raise _OrphanError(str(error)) from error
    log.warning("Lease %s was %s", pod.lease_id, why)
    if pod.trouble:
        ledger.tx.put_pod(replace(pod, trouble=""))
        ledger.forget()


def _given(ledger: Ledger, pod: Pod, claim: Claim) -> Claim:
    """What a pod claims, on the device that its node is known to have given it in place of another one like it."""
    device_uuid = pod.device_uuid
    if claim.picked_by_node and device_uuid not in (None, claim.device_uuid):
        for gpu_uuid in {gpu for gpu, node in ledger.owners.items() if node == claim.node}:
            document = ledger.reported_gpu(claim.node or "", gpu_uuid)
            for instance in () if document is None else document.instances:
                if instance.mig_uuid is not None and instance.mig_uuid == device_uuid:
                    place = Placement(gpu_uuid, instance.start, instance.size)
                    return replace(claim, placement=place, device_uuid=instance.mig_uuid)
    return claim


def _shown(ledger: Ledger, claim: Claim) -> Decision:
    """What a pod claims, as the report of its node shows it."""
    place = claim.placement
    owner = ledger.owners.get(place.gpu_uuid)
    if owner is None:
        raise _OrphanError(f"no node reports GPU {place.gpu_uuid}")
    if claim.node not in (None, owner):
        raise _OrphanError(f"it runs on node {claim.node}, but GPU {place.gpu_uuid} is in node {owner}")
    node = ledger.nodes[owner]
    if ledger.is_silent(node):
        raise _OrphanError(f"node {owner} is silent")
    document = ledger.reported_gpu(owner, place.gpu_uuid)
    if document is None:
        raise _OrphanError(f"node {owner} cannot tell how its GPU {place.gpu_uuid} is")
    gpu = node.gpus[place.gpu_uuid]
    if claim.profile is None:
        if document.mig_enabled is True or claim.device_uuid != gpu.gpu_uuid or place.start != 0:
            raise _OrphanError(f"node {owner} does not show {claim}")
        # The grid may have been longer when the driver told the profiles of the GPU: it need not while MIG is off.
        return Decision(owner, gpu, gpu.whole, None, claim.device_uuid, claim.cut)
    profile = _profile_at(document, claim, gpu.profiles)
    if profile is None:
        raise _OrphanError(f"node {owner} does not show {claim}")
    return Decision(owner, gpu, place, profile, claim.device_uuid, claim.cut)


def _profile_at(document: GPUDocument, claim: Claim, profiles: tuple[Profile, ...]) -> Profile | None:
    """The profile of the claimed device, if exactly that is there."""
    place = claim.placement
    for instance in document.instances:
        if (instance.start, instance.size, instance.mig_uuid) == (place.start, place.size, claim.device_uuid):
            return next((p for p in profiles if p.profile_id == instance.profile_id and p.name == claim.profile), None)
    return None


def _queued(ledger: Ledger, pod: Pod, claim: Claim, lease: Lease | None) -> Queued:
    """The lease as it was when it was asked for. An old ledger may still have it so."""
    other = ledger.tx.open_lease(*claim.holder.key)
    if other is not None and other.lease_id != pod.lease_id:
        raise _OrphanError(f"its holder {claim.holder} has lease {other.lease_id} already", other)
    if isinstance(lease, Queued):
        if other is None:
            raise _OrphanError(f"lease {lease.lease_id} is that of {lease.holder}, not of {claim.holder}")
        return lease
    granted_at = _granted_at(claim, ledger.now)
    return Queued(
        lease_id=pod.lease_id,
        holder=claim.holder,
        request=WholeRequest() if claim.profile is None else SliceRequest(claim.profile),
        queued_at=granted_at,
        duration_s=None if claim.expires_at is None else max((claim.expires_at - granted_at).total_seconds(), 0.0),
        pick=Pick.NODE if claim.picked_by_node else Pick.LEDGER,
    )


def _free(ledger: Ledger, claim: Claim, decision: Decision) -> Decision:
    """See that nobody holds the place. What is left of an ended lease exactly there was made by us and is now the pod's."""
    place = decision.placement
    for lease in ledger.facts.leases_on(place.gpu_uuid):
        if lease.grant.placement.overlaps(place):
            raise _OrphanError(f"lease {lease.lease_id} of {lease.holder} has memory slices of {claim}", lease)
    profile_id = None if decision.profile is None else decision.profile.profile_id
    for remnant in ledger.facts.remnants_on(place.gpu_uuid):
        if remnant.placement.overlaps(place):
            if (remnant.placement, remnant.profile_id) != (place, profile_id):
                raise _OrphanError(f"what is left of lease {remnant.lease_id} has memory slices of {claim}")
            ledger.tx.drop_remnant(remnant)
            ledger.forget()
            return replace(decision, cut=True)
    return decision


def _path(ledger: Ledger, claim: Claim, queued: Queued, decision: Decision) -> tuple[Queued, Granted, Ready, Active]:
    """The life of a lease up to now."""
    now = ledger.now
    # A generation of its own: a report from before proves nothing about this lease.
    generation = ledger.tx.next_generation()
    granted = transition.grant(queued, decision, generation, _granted_at(claim, now), claim.expires_at)
    ready = transition.make_ready(granted, claim.device_uuid, now)
    return queued, granted, ready, transition.activate(ready, now)


def _granted_at(claim: Claim, now: datetime) -> datetime:
    at = claim.granted_at
    return at if at is not None and now - OLDEST <= at <= now else now


def _leave(ledger: Ledger, pod: Pod, why: str, in_the_way: Lease | None) -> None:
    """Keep why a pod has no lease; when that is new, in the log too, and with the lease that is in the way."""
    if why == pod.trouble:
        return
    log.warning("Pod %s/%s has the label of lease %s but no lease: %s", pod.namespace, pod.name, pod.lease_id, why)
    ledger.tx.put_pod(replace(pod, trouble=why))
    ledger.forget()
    held = None if in_the_way is None else ledger.holding.get(in_the_way.lease_id)
    if held is not None:
        ledger.tx.note(
            held, who=ledger.who, why=f"pod {pod.namespace}/{pod.name} of lease {pod.lease_id} is left out: {why}"
        )
