"""Which GPU is earmarked for who has waited too long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.queue.outlook import Outlook, Start, could_serve

STARVATION_AFTER: Final = timedelta(minutes=30)
"""Who has waited so long starves, unless an admin says otherwise."""


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


def earmark_heads(
    starved: Iterable[Queued],
    earmarks: Mapping[str, str],
    states: Mapping[str, GPUState],
    outlooks: Callable[[Queued], Iterable[Outlook]],
) -> Iterator[tuple[Queued, str]]:
    """A GPU for each head of those who have waited too long.

    A head is whoever competes with nobody who has a GPU earmarked already; so of those who ask for the same it is the first.

    Args:
        starved: in the order of the line.
        earmarks: which GPU is kept for which lease, by `gpu_uuid`.
        states: the fleet, by `gpu_uuid`.
        outlooks: the fleet with what will happen on it, as this lease sees it; asked for only where a GPU is to be found.
    """
    taken, seen = dict(earmarks), set()
    for lease in starved:
        kind = (lease.choices, lease.avoid)
        if kind in seen or lease.lease_id in taken.values():
            continue
        seen.add(kind)
        if any(uuid in states and could_serve(states[uuid], lease.choices) for uuid in taken):
            continue
        gpu_uuid = earmark_for(lease, outlooks(lease), taken)
        if gpu_uuid is not None:
            taken[gpu_uuid] = lease.lease_id
            yield lease, gpu_uuid
