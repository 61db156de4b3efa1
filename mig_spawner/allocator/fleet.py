"""From ledger rows and last reports to the GPUs as placement sees them.

Unknown is not free and not idle: a silent node, a sick GPU, an instance whose processes cannot be counted, a pod that still
carries a lease label: nothing is granted there, whoever put it there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.allocator.store.base import Holding, NodeRecord, Pod, Remnant
from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import GPU, Engines, Layout, Placement
from mig_spawner.domain.lease import Granted
from mig_spawner.wire.node import GPUDocument, Health, InstanceDocument


@dataclass(frozen=True, slots=True)
class Taken:
    """Memory slices of a GPU that something of ours has.

    Attributes:
        profile_id: None for a whole GPU, or when it is not known any more.
        cut: the instance there was made by us, so it is nobody's to lease.
        whole: the lease is on the whole GPU, however long its grid is by now.
    """

    placement: Placement
    profile_id: int | None
    cut: bool
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Occupied:
    """Everything of ours by `gpu_uuid`, and the devices that some pod may still use."""

    taken: Mapping[str, list[Taken]]
    devices: frozenset[str]


def occupied(holding: Iterable[Holding], remnants: Iterable[Remnant], pods: Iterable[Pod]) -> Occupied:
    """What leases, their remnants and pods with a lease label have taken."""
    taken: dict[str, list[Taken]] = defaultdict(list)
    own: dict[str, str | None] = {}
    for lease in holding:
        grant = lease.grant
        taken[grant.placement.gpu_uuid].append(
            Taken(grant.placement, grant.profile_id, grant.cut, whole=grant.profile_id is None)
        )
        own[lease.lease_id] = None if isinstance(lease, Granted) else lease.device_uuid
    for remnant in remnants:
        taken[remnant.placement.gpu_uuid].append(Taken(remnant.placement, remnant.profile_id, cut=True))
    devices = set()
    for pod in pods:
        if pod.device_uuid is not None and pod.device_uuid != own.get(pod.lease_id):
            devices.add(pod.device_uuid)
        if pod.lease_id not in own:
            places = {pod.placement, None if pod.claim is None else pod.claim.placement}
            for place in places:
                if place is not None:
                    taken[place.gpu_uuid].append(Taken(place, None, cut=False))
    return Occupied(taken, frozenset(devices))


def is_silent(node: NodeRecord, now: datetime, silent_after: timedelta) -> bool:
    """Whether a node has not reported for too long to know what is there now."""
    return node.reported_at is None or now - node.reported_at > silent_after


def fleet_of(
    nodes: Iterable[NodeRecord],
    owners: Mapping[str, str],
    occupied: Occupied,
    now: datetime,
    silent_after: timedelta,
    *,
    blind: bool = False,
) -> list[GPUState]:
    """Every GPU of every node, in the order of names and reports. Who is blind does not know the pods, so nothing is to be had."""
    everywhere = "the pods of the cluster have not been listed yet" if blind else None
    return [
        _known_state(node, document, occupied, trouble or _held(node, document.gpu_uuid))
        for node in nodes
        if node.report is not None
        for trouble in (everywhere or _node_trouble(node, now, silent_after),)
        for document in node.report.gpus
        if owners.get(document.gpu_uuid) == node.name
    ]


def _node_trouble(node: NodeRecord, now: datetime, silent_after: timedelta) -> str | None:
    if is_silent(node, now, silent_after):
        return f"node {node.name} is silent"
    if node.report is not None and node.report.problem:
        return f"node {node.name}: {node.report.problem}"
    return f"node {node.name} is cordoned" if node.cordoned else None


def _held(node: NodeRecord, gpu_uuid: str) -> str | None:
    return f"GPU {gpu_uuid} is being cut anew" if gpu_uuid in node.desired.held else None


def _gpu_trouble(document: GPUDocument) -> str | None:
    if document.health is Health.OK:
        return None
    why = f": {document.health_reason}" if document.health_reason else ""
    return f"GPU {document.gpu_uuid} is {document.health}{why}"


@dataclass(frozen=True, slots=True)
class _Derived:
    """What the state of a GPU was last derived from, and that state. The same facts give the same state: this spares work, and holds no
    truth of its own."""

    facts: tuple[object, ...]
    ours: list[Taken]
    state: GPUState


_LAST: dict[str, _Derived] = {}
_MOST: Final = 50_000


def _known_state(node: NodeRecord, document: GPUDocument, occupied: Occupied, trouble: str | None) -> GPUState:
    """`_state`, worked out only when one of its facts is another one. A report that did not change is the same object."""
    uuid = document.gpu_uuid
    gpu, ours = node.gpus[uuid], occupied.taken.get(uuid, [])
    known = _LAST.get(uuid)
    if (
        known is not None
        and known.facts[0] is gpu
        and known.facts[1] is document
        and known.facts[2:] == (node.name, trouble, occupied.devices)
        and known.ours == ours
    ):
        return known.state
    state = _state(node, gpu, document, occupied, trouble)
    if len(_LAST) >= _MOST:
        _LAST.clear()
    _LAST[uuid] = _Derived((gpu, document, node.name, trouble, occupied.devices), list(ours), state)
    return state


def _state(node: NodeRecord, gpu: GPU, document: GPUDocument, occupied: Occupied, trouble: str | None) -> GPUState:
    ours = occupied.taken.get(gpu.gpu_uuid, [])
    layout = Layout(gpu)
    for taken in ours:
        layout = layout.with_taken(gpu.whole if taken.whole else taken.placement, _engines(gpu, taken.profile_id))
    covered = {(t.placement.start, t.placement.size) for t in ours if t.profile_id is not None}
    devices = []
    for instance in document.instances:
        place = Placement(gpu.gpu_uuid, instance.start, instance.size)
        if (instance.start, instance.size) not in covered:
            layout = layout.with_taken(place, _engines(gpu, instance.profile_id))
        if not any(t.cut and t.placement.overlaps(place) for t in ours):
            device = _device(gpu, instance, place, ours, occupied)
            devices += [device] if device is not None else []
    uncut = document.mig_enabled is not True
    return GPUState(
        node=node.name,
        gpu=gpu,
        layout=layout,
        devices=tuple(devices),
        dynamic=document.dynamic,
        mig_enabled=document.mig_enabled,
        unavailable=trouble or _gpu_trouble(document),
        busy=(uncut and document.processes != 0) or gpu.gpu_uuid in occupied.devices,
    )


def _device(
    gpu: GPU, instance: InstanceDocument, place: Placement, ours: list[Taken], occupied: Occupied
) -> Device | None:
    """A partition that somebody else made, if it is complete and of a known profile."""
    profile = gpu.profile_by_id(instance.profile_id)
    if instance.mig_uuid is None or profile is None:
        return None
    held = any(t.placement.overlaps(place) for t in ours) or instance.mig_uuid in occupied.devices
    return Device(place, profile, instance.mig_uuid, idle=not held and instance.processes == 0)


def _engines(gpu: GPU, profile_id: int | None) -> Engines:
    profile = None if profile_id is None else gpu.profile_by_id(profile_id)
    return Engines() if profile is None else profile.engines
