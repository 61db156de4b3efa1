"""A Kubernetes cluster without a cluster: an API server in memory, and a kubelet that runs pods as local processes.

    async with EmbeddedKube() as kube:
        kube.write_kubeconfig(folder / "kubeconfig.yaml")
        async with Kubelet(kube.url, [NodeSpec("gpu-a", capacity={"nvidia.com/mig-1g.10gb": "2"})], state_dir=folder):
            ...  # an unmodified KubeSpawner, kubernetes_asyncio and kubectl work from here on

What goes wrong in real clusters can be made to go wrong here: `KubeKnobs`.
"""

from mig_spawner.testing.kube.access import KubeUser
from mig_spawner.testing.kube.knobs import KubeKnobs, PodMatch
from mig_spawner.testing.kube.kubelet import Kubelet, NodeSpec
from mig_spawner.testing.kube.server import EmbeddedKube

__all__ = ["EmbeddedKube", "KubeKnobs", "KubeUser", "Kubelet", "NodeSpec", "PodMatch"]
