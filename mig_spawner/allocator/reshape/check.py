"""Whether a proposal still makes sense: what it would cut is idle, and nobody else has a claim to it."""

from __future__ import annotations

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.reshape.desire import key
from mig_spawner.domain.reshape import Reshape


def stale(ledger: Ledger, reshape: Reshape) -> str:
    """Why it cannot be applied now, a sentence; empty if it can."""
    state = next((s for s in ledger.gpus_of(reshape.node) if s.gpu.gpu_uuid == reshape.gpu_uuid), None)
    document = ledger.reported_gpu(reshape.node, reshape.gpu_uuid)
    if state is None or document is None:
        return f"Node {reshape.node} does not show the GPU {reshape.gpu_uuid} any more."
    if state.unavailable is not None:
        return f"Nothing may be done there now: {state.unavailable}."
    if not document.reshapable:
        return f"The agent of {reshape.node} does not cut this GPU anew."
    if reshape.gpu_uuid in ledger.tx.earmarks():
        return f"GPU {reshape.gpu_uuid} is kept for somebody who has waited too long."
    idle = {
        (d.profile.profile_id, d.placement.start, d.placement.size): d.placement.mask for d in state.devices if d.idle
    }
    for place in reshape.remove:
        if key(place) not in idle:
            return f"{place} is in use, or not there any more."
    left = state.layout.mask
    for place in reshape.remove:
        left &= ~place.mask
    if any(place.mask & left for place in reshape.make):
        return "What was free there is not any more."
    return ""


def wanted(ledger: Ledger, reshape: Reshape) -> bool:
    """Whether somebody still waits for what it would make."""
    return any(reshape.asked in map(str, lease.choices) for lease in ledger.tx.queue())
