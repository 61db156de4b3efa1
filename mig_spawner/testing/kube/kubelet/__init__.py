"""A small kubelet: nodes without machines, pods as local processes."""

from mig_spawner.testing.kube.kubelet.kubelet import Kubelet
from mig_spawner.testing.kube.kubelet.node import NodeSpec

__all__ = ["Kubelet", "NodeSpec"]
