"""What a lease holds, as it counts for quotas."""

from __future__ import annotations

from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.held import Piece, memory_gb
from mig_spawner.domain.lease import Grant
from mig_spawner.domain.quota import Size


def piece_of(lease: Holding, gpu: GPU | None) -> Piece:
    """What this lease holds. `gpu`: the one that it is on, if that is known."""
    grant = lease.grant
    return Piece(granted_size(grant, gpu), grant.share, grant.granted_at, grant.expires_at)


def granted_size(grant: Grant, gpu: GPU | None) -> Size:
    """How large what was granted is."""
    # Of a GPU that is gone the part of its multiprocessors is not known any more, that of its memory slices is.
    share = grant.multiprocessors / gpu.multiprocessors if gpu is not None and gpu.multiprocessors else grant.share
    return Size(memory_gb(grant.profile, grant.memory_mib), share)
