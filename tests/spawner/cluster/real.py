"""The world of the hub's tests on a real control plane: hub, allocator and agent as processes, and a kubelet that runs pods."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path

import httpx

from mig_spawner.testing.controlplane.run import ControlPlane
from mig_spawner.testing.kube import Kubelet, NodeSpec
from tests.spawner.hub.conftest import Cluster


class RealCluster(Cluster):
    """Its knobs do nothing: what goes wrong here is made with what clusters have."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        super().__init__(folder)
        self.namespace = f"hub-{secrets.token_hex(4)}"
        self.url = plane.url
        self._plane = plane

    def client(self) -> httpx.AsyncClient:
        """An admin's, for the namespace of the hub."""
        return self._client(f"/api/v1/namespaces/{self.namespace}/")

    def cluster_client(self) -> httpx.AsyncClient:
        """An admin's, for what has no namespace."""
        return self._client("/")

    def _client(self, path: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self._plane.token()}"}
        verify = ssl.create_default_context(cafile=self._plane.ca_file)
        return httpx.AsyncClient(
            base_url=f"{self.url}{path}", headers=headers, verify=verify, timeout=10, trust_env=False
        )

    async def _open(self) -> None:
        self._plane.kubeconfig(self.kubeconfig)
        async with self.cluster_client() as admin:
            made = await admin.post("api/v1/namespaces", json={"metadata": {"name": self.namespace}})
            made.raise_for_status()
            nvidia = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
            assert (await admin.post("apis/node.k8s.io/v1/runtimeclasses", json=nvidia)).status_code in {201, 409}
        nodes = [NodeSpec("gpu-a"), NodeSpec("cpu-a")]
        kubelet = Kubelet(self.kubeconfig, nodes, state_dir=self._folder / "kubelet", schedule=False)
        await self._stack.enter_async_context(kubelet)
