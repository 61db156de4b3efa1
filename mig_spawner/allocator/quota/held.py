"""What is held now by the ledger. Built once in a transaction, since every decision asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.held import Held, Piece, memory_gb
from mig_spawner.domain.lease import Grant
from mig_spawner.domain.quota import Size


def held_of(holding: Iterable[Holding], gpus: Mapping[str, GPU]) -> Held:
    """What these leases hold.

    Args:
        gpus: those that are known now, by `gpu_uuid`.
    """
    held = Held()
    for lease in holding:
        grant = lease.grant
        size = granted_size(grant, gpus.get(grant.placement.gpu_uuid))
        held.add(lease.person, Piece(size, grant.share, grant.granted_at, grant.expires_at))
    return held


def granted_size(grant: Grant, gpu: GPU | None) -> Size:
    """How large what was granted is."""
    # Of a GPU that is gone the part of its multiprocessors is not known any more, that of its memory slices is.
    share = grant.multiprocessors / gpu.multiprocessors if gpu is not None and gpu.multiprocessors else grant.share
    return Size(memory_gb(grant.profile, grant.memory_mib), share)
