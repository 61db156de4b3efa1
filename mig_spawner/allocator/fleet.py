"""From ledger rows and last reports to the GPUs as placement sees them.

Unknown is not free and not idle: a silent node, a sick GPU, an instance whose processes cannot be counted, a pod that still
carries a lease label: nothing is granted there, whoever put it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import GPU, Engines, Layout, Placement
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


def is_silent(node: NodeRecord, now: datetime, silent_after: timedelta) -> bool:
    """Whether a node has not reported for too long to know what is there now."""
    return node.reported_at is None or now - node.reported_at > silent_after


def node_trouble(node: NodeRecord, now: datetime, silent_after: timedelta) -> str | None:
    """Why nothing may be granted on a whole node; None if it may."""
    if is_silent(node, now, silent_after):
        return f"node {node.name} is silent"
    if node.report is not None and node.report.problem:
        return f"node {node.name}: {node.report.problem}"
    return f"node {node.name} is cordoned" if node.cordoned else None


def held_trouble(node: NodeRecord, gpu_uuid: str) -> str | None:
    """Why nothing may be granted on a GPU of a node that is well; None if it may, as far as its node knows."""
    return f"GPU {gpu_uuid} is being cut anew" if gpu_uuid in node.desired.held else None


def _gpu_trouble(document: GPUDocument) -> str | None:
    if document.health is Health.OK:
        return None
    why = f": {document.health_reason}" if document.health_reason else ""
    return f"GPU {document.gpu_uuid} is {document.health}{why}"


def state_of(
    node: NodeRecord,
    document: GPUDocument,
    ours: Sequence[Taken],
    used_by_a_pod: Callable[[str], bool],
    trouble: str | None,
) -> GPUState:
    """A GPU of a node as placement sees it.

    Args:
        ours: everything of ours on it.
        used_by_a_pod: whether a pod may use a device, by its UUID, that its lease does not have.
        trouble: why nothing may be granted on the whole node.
    """
    gpu = node.gpus[document.gpu_uuid]
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
            device = _device(gpu, instance, place, ours, used_by_a_pod)
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
        busy=(uncut and document.processes != 0) or used_by_a_pod(gpu.gpu_uuid),
    )


def _device(
    gpu: GPU,
    instance: InstanceDocument,
    place: Placement,
    ours: Sequence[Taken],
    used_by_a_pod: Callable[[str], bool],
) -> Device | None:
    """A partition that somebody else made, if it is complete and of a known profile."""
    profile = gpu.profile_by_id(instance.profile_id)
    if instance.mig_uuid is None or profile is None:
        return None
    held = any(t.placement.overlaps(place) for t in ours) or used_by_a_pod(instance.mig_uuid)
    return Device(place, profile, instance.mig_uuid, idle=not held and instance.processes == 0)


def _engines(gpu: GPU, profile_id: int | None) -> Engines:
    profile = None if profile_id is None else gpu.profile_by_id(profile_id)
    return Engines() if profile is None else profile.engines
