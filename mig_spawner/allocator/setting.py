"""What an admin decides about leases, as values with units."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from mig_spawner.domain.policy import DEFAULT_POLICY, Apart
from mig_spawner.domain.queue import STARVATION_AFTER

NO_POOL: Final = "default"
"""The pool of a node that no pattern names."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How the allocator judges; see the traits of `AllocatorApp` for when to change what.

    Attributes:
        node_silent_after: without a report for so long, nothing is granted on a node.
        ready_timeout: a Ready lease that nobody takes is released.
        make_timeout: a device that is not there after so long is tried on another GPU.
        settle_after: how long a pod that nobody has seen may still appear.
        heartbeat_timeout: an Active lease without heartbeat, pod and process is released.
        retry_after: GPUs on which a grant failed are tried again after so long, when no other can serve.
        expiry_warning: so long before the end of a lease those who watch are told, or in its last quarter if that is shorter; zero
            for never.
        queue_limit: more do not wait.
        policy: how places are ranked, one of `POLICIES`.
        starvation_after: who has waited so long, and is not served, has a GPU earmarked; None for never.
        claim_window: a slice that is ready for somebody who has left passes on if it is not claimed within this time.
        watches_pods: a pod watch runs; without it only heartbeats and processes tell that a holder lives.
        pools: names of pools, each with the patterns of its nodes.
        keep_apart: groups that never share a GPU.
    """

    node_silent_after: timedelta = timedelta(seconds=60)
    ready_timeout: timedelta = timedelta(seconds=600)
    make_timeout: timedelta = timedelta(seconds=120)
    settle_after: timedelta = timedelta(seconds=40)
    heartbeat_timeout: timedelta = timedelta(seconds=300)
    retry_after: timedelta = timedelta(seconds=60)
    expiry_warning: timedelta = timedelta(seconds=600)
    queue_limit: int = 1000
    policy: str = DEFAULT_POLICY
    starvation_after: timedelta | None = STARVATION_AFTER
    claim_window: timedelta = timedelta(seconds=600)
    watches_pods: bool = False
    pools: tuple[tuple[str, tuple[str, ...]], ...] = ()
    keep_apart: tuple[Apart, ...] = ()

    def pool_of(self, node: str) -> str:
        """The first pool that names a node."""
        return next((pool for pool, nodes in self.pools if any(fnmatchcase(node, n) for n in nodes)), NO_POOL)
