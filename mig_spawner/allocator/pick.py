"""The device that a node gave to the pod of a lease, where its device plugin picks one.

With a device plugin a lease stands for one device of its profile on its node, and the kubelet picks. Once it says which one it was, the
lease is moved there. Where the ledger has that device for somebody whose own pick is not known yet, the two change places: the kubelet
gives no device to two, so the other one is elsewhere, and its node will say where. Whoever's pod is made for one device keeps it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Active, Grant, Granted, Pick, Ready, Releasing, relocate
from mig_spawner.wire.problem import ProblemCode


def learn(ledger: Ledger, lease: Ready | Active, device_uuid: str) -> Ready | Active:
    """The lease on the device that its node gave it. Doing it twice does no harm.

    Raises:
        AllocatorRefused: `not-found` while the node does not show such a device; `conflict` when it cannot be the lease's.
    """
    if lease.device_uuid == device_uuid:
        if lease.pick is Pick.KNOWN:
            return lease
        return ledger.move(lease, replace(lease, pick=Pick.KNOWN), "its node gave it the device of its lease")
    given = _shown(ledger, lease, device_uuid)
    if lease.grant.cut:
        _refuse(device_uuid, "its own device was cut for it")
    steps: list[tuple[Holding, Holding, str]] = []
    other = _holder(ledger, given, device_uuid)
    if other is not None:
        moved = relocate(other, _at(other.grant, lease.grant), lease.device_uuid, other.pick)
        steps.append((other, moved, f"its node gave its device {device_uuid} to the pod of lease {lease.lease_id}"))
    learned = replace(lease, grant=given, device_uuid=device_uuid, pick=Pick.KNOWN)
    steps.append((lease, learned, f"its node gave it {device_uuid}, another one like {lease.device_uuid}"))
    ledger.exchange(steps)
    return learned


def _shown(ledger: Ledger, lease: Ready | Active, device_uuid: str) -> Grant:
    """The lease's grant, were it on a device as the report of its node shows it."""
    grant, node = lease.grant, ledger.nodes.get(lease.grant.node)
    for gpu in () if node is None else node.gpus.values():
        document = ledger.reported_gpu(grant.node, gpu.gpu_uuid)
        if document is None:
            continue
        if grant.profile is None and gpu.gpu_uuid == device_uuid and document.mig_enabled is not True:
            return _on(grant, Decision(grant.node, gpu, gpu.whole, None, device_uuid, cut=False))
        for instance in document.instances:
            profile = gpu.profile_by_id(instance.profile_id)
            if instance.mig_uuid != device_uuid or profile is None:
                continue
            if profile.name != grant.profile:
                _refuse(device_uuid, f"that is a {profile.name}, and it asked for {lease.request}")
            place = Placement(gpu.gpu_uuid, instance.start, instance.size)
            return _on(grant, Decision(grant.node, gpu, place, profile, device_uuid, cut=False))
    raise refusal(
        ProblemCode.NOT_FOUND, f"Node {grant.node} does not show a device {device_uuid} now. Its next report may."
    )


def _holder(ledger: Ledger, given: Grant, device_uuid: str) -> Holding | None:
    """Whoever has this place in the ledger, if they can have another one like it; None if nobody has it."""
    place = given.placement
    if ledger.orphan_on(place) is not None:
        _refuse(device_uuid, "a pod without a lease says that it has it")
    if any(remnant.placement.overlaps(place) for remnant in ledger.facts.remnants_on(place.gpu_uuid)):
        _refuse(device_uuid, "that is still to be destroyed")
    others = [lease for lease in ledger.facts.leases_on(place.gpu_uuid) if lease.grant.placement.overlaps(place)]
    for other in others:
        if other.grant.placement != place or other.grant.cut or not _can_be_elsewhere(other):
            _refuse(device_uuid, "that is leased to another server, which is made for it")
    return next(iter(others), None)


def _can_be_elsewhere(other: Holding) -> bool:
    match other:
        case Granted():
            return True  # nothing is made for it yet
        case Ready() | Active():
            return other.pick is Pick.NODE
        case Releasing():
            return other.pick is not Pick.LEDGER  # what the kubelet gives to another its pod has left


def _on(grant: Grant, there: Decision) -> Grant:
    """The same grant, served there."""
    return replace(
        grant,
        placement=there.placement,
        profile_id=None if there.profile is None else there.profile.profile_id,
        model=there.gpu.model,
        memory_mib=there.memory_mib,
        multiprocessors=there.multiprocessors,
        share=there.share,
    )


def _at(grant: Grant, there: Grant) -> Grant:
    """The same grant in the place of another."""
    return replace(
        there,
        generation=grant.generation,
        granted_at=grant.granted_at,
        expires_at=grant.expires_at,
        choice=grant.choice,
    )


def _refuse(device_uuid: str, why: str) -> NoReturn:
    raise refusal(ProblemCode.CONFLICT, f"Its node gave this server the device {device_uuid}, but {why}.")
