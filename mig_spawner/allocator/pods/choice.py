"""Which pod watch a configuration asks for."""

from __future__ import annotations

from mig_spawner.allocator.pods.base import PodWatch
from mig_spawner.allocator.pods.none import NoPods


def watch_of(kubeconfig: str, namespace: str) -> PodWatch:
    """A watch of the pods of a namespace; one that sees nothing without a kubeconfig."""
    if not kubeconfig:
        return NoPods()
    # Kubernetes' client takes a second to import: only who watches pods pays for it.
    from mig_spawner.allocator.pods.kube import KubePods

    return KubePods(kubeconfig, namespace)
