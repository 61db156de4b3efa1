"""When a lease that ends may be closed: its pod is gone, and its device idle. Whatever is not known, it waits for."""

from __future__ import annotations

from datetime import datetime, timedelta

from mig_spawner.allocator.ledger import Ledger, processes_on
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import PodFate, Releasing


def close_ended(ledger: Ledger) -> None:
    """Close every Releasing lease that nothing holds up any more."""
    for lease in list(ledger.facts.releasing.values()):
        if not waits_for(ledger, lease):
            ledger.move(lease, transition.close(lease, ledger.now), "its pod is gone and its device idle")


def waits_for(ledger: Ledger, lease: Releasing) -> list[str]:
    """What a Releasing lease still waits for, in words; empty when it may be closed."""
    return [reason for reason in (_pod(ledger, lease), _device(ledger, lease)) if reason is not None]


def _pod(ledger: Ledger, lease: Releasing) -> str | None:
    pod = ledger.pod_of(lease.lease_id)
    if pod is not None:
        return f"its pod {pod.namespace}/{pod.name} is still there"
    if lease.pod is not PodFate.UNKNOWN:
        return None
    settled_at = _settled_at(ledger, lease)
    if ledger.now < settled_at:
        return "its pod may still appear or run"
    if ledger.setting.watches_pods:
        # A pod that was asked for before the release may have appeared until then: only a list begun later rules it out.
        listed_at = ledger.tx.pods_listed_at()
        if listed_at is None or listed_at < settled_at:
            return "the allocator must list the pods again to be sure that its pod is gone"
    return None


def _settled_at(ledger: Ledger, lease: Releasing) -> datetime:
    """From when on nothing new can begin to use the device: what was seen earlier says nothing about later."""
    may_appear = lease.pod is PodFate.UNKNOWN
    return lease.releasing_at + (ledger.setting.settle_after if may_appear else timedelta(0))


def _device(ledger: Ledger, lease: Releasing) -> str | None:
    node = ledger.nodes.get(lease.grant.node)
    if node is None or node.reported_at is None or ledger.is_silent(node):
        return f"node {lease.grant.node} is silent"
    if node.reported_at <= _settled_at(ledger, lease):
        return f"node {node.name} has still to report its device idle"
    gpu = ledger.reported_gpu(node.name, lease.grant.placement.gpu_uuid)
    if gpu is None:
        return f"node {node.name} cannot tell how its GPU is"
    processes = processes_on(gpu, lease)
    if processes is None:
        return "it cannot be known whether a process still runs on its device"
    if not processes:
        return None
    return "a process still runs on its device" if processes == 1 else f"{processes} processes still run on its device"
