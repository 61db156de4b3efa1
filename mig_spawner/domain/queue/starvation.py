"""Which GPU is earmarked for who has waited too long."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mig_spawner.domain.lease import Queued
from mig_spawner.domain.queue.outlook import Outlook, Start


def earmark_for(lease: Queued, outlooks: Iterable[Outlook], taken: Collection[str]) -> str | None:
    """The GPU on which a lease is expected to begin first, if nothing new is placed there; None if there is none now.

    Args:
        taken: the GPUs that are earmarked already.
    """
    best: tuple[Start, str] | None = None
    for outlook in outlooks:
        gpu_uuid = outlook.state.gpu.gpu_uuid
        if gpu_uuid in taken or gpu_uuid in lease.avoid:
            continue
        found = outlook.earliest(lease.choices)
        if found is not None and (best is None or found[0] < best[0]):
            best = found[0], gpu_uuid
    return None if best is None else best[1]
