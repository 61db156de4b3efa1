"""Leases that are wanted on one node alone: to them every GPU elsewhere is one to avoid, for ever.

GPUs come and go, and the queue forgives those on which a grant has failed, so this is said anew before anybody is served.
"""

from __future__ import annotations

from dataclasses import replace

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.lease import Queued


def keep_bound(ledger: Ledger) -> None:
    """Write into every waiting lease that is bound to a node what it has to avoid. Changes nothing where that stands already."""
    for lease in ledger.tx.bound():
        elsewhere = _elsewhere(ledger, lease)
        if not elsewhere <= lease.avoid:
            ledger.move(
                lease, replace(lease, avoid=lease.avoid | elsewhere), f"it is wanted on node {lease.node} alone"
            )


def failed_on(ledger: Ledger, lease: Queued) -> int:
    """On how many GPUs it could not be made or used, of those where it may be at all."""
    return len(lease.avoid if lease.node is None else lease.avoid - _elsewhere(ledger, lease))


def _elsewhere(ledger: Ledger, lease: Queued) -> frozenset[str]:
    return frozenset(state.gpu.gpu_uuid for state in ledger.fleet if state.node != lease.node)
