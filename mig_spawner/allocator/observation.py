"""What a node's report changes for the leases on it."""

from __future__ import annotations

from collections.abc import Sequence

from mig_spawner.allocator.ledger import Ledger, instance_at
from mig_spawner.allocator.store.base import NodeRecord
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import Active, EndReason, Granted, PodFate, Ready
from mig_spawner.wire.node import GPUDocument, NodeReport, UsageDocument


def observe(ledger: Ledger, node: NodeRecord, report: NodeReport) -> None:
    """Move the leases of a node to where its newest report, already stored, says they are."""
    for lease in ledger.facts.leases_of(node.name):
        if isinstance(lease, Granted):
            _see_made(ledger, lease, report)
        elif isinstance(lease, (Ready, Active)):
            _see_lost(ledger, lease, report)
    _see_failures(ledger, node, report)
    _see_remnants(ledger, node, report)


def end_after_boot(ledger: Ledger, node: str) -> None:
    """Ready or Active → Releasing on a node that has booted. Instances do not survive that, and what ran is gone: even where a
    device with the same UUID is there again by now, it is another one."""
    for lease in ledger.facts.leases_of(node):
        if isinstance(lease, (Ready, Active)):
            lost = transition.release(lease, EndReason.NODE_REBOOTED, PodFate.UNKNOWN, ledger.now)
            ledger.move(lease, lost, f"node {node} has booted")


def measure(ledger: Ledger, node: NodeRecord, usage: Sequence[UsageDocument]) -> None:
    """Keep the most memory that each device was seen to use with the lease that has it."""
    used = {(u.gpu_uuid, u.device_uuid): u.memory_used_mib for u in usage if u.memory_used_mib is not None}
    for lease in ledger.facts.leases_of(node.name):
        if isinstance(lease, (Ready, Active)):
            now = used.get((lease.grant.placement.gpu_uuid, lease.device_uuid))
            if now is not None and now > (lease.peak_memory_mib or -1):
                ledger.note_peak(lease, now)


def _see_made(ledger: Ledger, lease: Granted, report: NodeReport) -> None:
    """Granted → Ready once a report that was made after this grant shows the device.

    A MIG UUID may repeat, so an older report could show the device of the lease that was there before. And an old ledger may have
    granted what a pod, that it does not know, lives on by now.
    """
    if ledger.blind or ledger.orphan_on(lease.grant.placement) is not None:
        return
    gpu = ledger.reported_gpu(lease.grant.node, lease.grant.placement.gpu_uuid)
    if gpu is None or report.applied_generation < lease.grant.generation:
        return
    device_uuid = _device_uuid(gpu, lease)
    if device_uuid is not None:
        ready = transition.make_ready(lease, device_uuid, ledger.now)
        ledger.move(lease, ready, f"the agent reports {device_uuid}")


def _see_lost(ledger: Ledger, lease: Ready | Active, report: NodeReport) -> None:
    """Ready or Active → Releasing once a report shows the GPU without the device."""
    gpu = ledger.reported_gpu(lease.grant.node, lease.grant.placement.gpu_uuid)
    # 0 is an agent that has just started and sees the truth; any other older number is a report that was overtaken.
    overtaken = lease.grant.cut and 0 < report.applied_generation < lease.grant.generation
    if gpu is None or overtaken or _device_uuid(gpu, lease) == lease.device_uuid:
        return
    lost = transition.release(lease, EndReason.DEVICE_LOST, PodFate.UNKNOWN, ledger.now)
    ledger.move(lease, lost, f"the report of {lease.grant.node} does not show {lease.device_uuid} any more")


def _device_uuid(gpu: GPUDocument, lease: Granted | Ready | Active) -> str | None:
    """The device of a lease as reported now."""
    profile_id = lease.grant.profile_id
    if profile_id is None:
        return None if gpu.mig_enabled is True else gpu.gpu_uuid
    instance = instance_at(gpu, lease.grant.placement, profile_id)
    return None if instance is None else instance.mig_uuid


def _see_failures(ledger: Ledger, node: NodeRecord, report: NodeReport) -> None:
    for failure in report.failures:
        lease = ledger.holding.get(failure.lease_id or "")
        if (
            isinstance(lease, Granted)
            and lease.grant.node == node.name
            and lease.grant.placement.gpu_uuid == failure.gpu_uuid
            and report.applied_generation >= lease.grant.generation
        ):
            ledger.move(lease, transition.requeue(lease), f"{failure.step} failed: {failure.reason}")


def _see_remnants(ledger: Ledger, node: NodeRecord, report: NodeReport) -> None:
    """Free the slices of instances that a report, made after the agent learned to destroy them, shows gone."""
    for remnant in ledger.facts.remnants_of(node.name):
        if report.applied_generation < remnant.generation:
            continue
        gpu = ledger.reported_gpu(node.name, remnant.placement.gpu_uuid)
        if gpu is not None and instance_at(gpu, remnant.placement, remnant.profile_id) is None:
            ledger.tx.drop_remnant(remnant)
            ledger.forget()
