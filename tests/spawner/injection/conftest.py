"""A corner of a real cluster: a namespace in which the hub has the rights of a hub, nodes that run pods, and a DRA driver that pretends."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio import client, config

from mig_spawner.testing.controlplane.run import HUB, ControlPlane
from mig_spawner.testing.kube import Kubelet, NodeSpec
from mig_spawner.testing.process import until
from tests.controlplane.fixture import control_plane

__all__ = ["control_plane"]

DEADLINE_S = 30.0
DRA_ROLE = Path(__file__).parents[3] / "hub_config" / "kubernetes" / "hub-dra-role.yaml"
DRIVER = "gpu.nvidia.com"
GIVEN = "MIG-given-by-the-kubelet"
# What Zero to JupyterHub gives its hub.
HUB_RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]


async def eventually(check: Callable[[], Awaitable[Any]], what: str) -> Any:
    return await until(check, timeout_s=DEADLINE_S, seen=f"{what} did not come about within {DEADLINE_S:g} s")


@dataclass
class Corner:
    """A namespace of the test's own, and a node in it, seen by the admin and by the hub."""

    namespace: str
    admin: client.ApiClient
    hub: client.ApiClient
    admin_kubeconfig: Path
    hub_kubeconfig: Path

    # `Any`, since manifests are handed over as plain dictionaries, which the client takes and its types do not know.
    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.admin)

    @property
    def rbac(self) -> Any:
        return client.RbacAuthorizationV1Api(self.admin)

    @property
    def resource(self) -> Any:
        return client.ResourceV1Api(self.admin)

    @property
    def node(self) -> str:
        return f"node-{self.namespace}"

    @property
    def device_class(self) -> str:
        return f"mig.{self.namespace}.nvidia.com"

    async def eventually(self, check: Callable[[], Awaitable[Any]], what: str) -> Any:
        return await eventually(check, what)

    async def scheduler_says(self, pod: str) -> str | None:
        """Why a pod waits."""
        found = await self.core.read_namespaced_pod(pod, self.namespace)
        for condition in found.status.conditions or []:
            if condition.type == "PodScheduled" and condition.status == "False":
                return str(condition.message)
        return None

    async def claims(self) -> dict[str, Any]:
        listed = await self.resource.list_namespaced_resource_claim(self.namespace)
        return {claim.metadata.name: claim for claim in listed.items}

    async def pods(self) -> list[str]:
        return [pod.metadata.name for pod in (await self.core.list_namespaced_pod(self.namespace)).items]

    async def allow(self, name: str, rules: Any) -> None:
        """Give the hub these rights here, and wait until they hold."""
        metadata = {"name": name}
        await self.rbac.create_namespaced_role(self.namespace, {"metadata": metadata, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB.name}]
        binding = {"metadata": metadata, "roleRef": reference, "subjects": subjects}
        await self.rbac.create_namespaced_role_binding(self.namespace, binding)
        for rule in rules:
            for verb in rule["verbs"]:
                asked = {"verb": verb, "group": rule["apiGroups"][0], "resource": rule["resources"][0]}
                await eventually(partial(self._may, asked), f"the right to {verb}")

    async def allow_dra(self) -> None:
        """What an admin applies for `dra`."""
        await self.allow("hub-dra", self.dra_manifests()[0]["rules"])

    @staticmethod
    def dra_manifests() -> list[Any]:
        return list(yaml.safe_load_all(DRA_ROLE.read_text()))

    async def _may(self, asked: dict[str, str]) -> bool:
        review: Any = {"spec": {"resourceAttributes": {"namespace": self.namespace, **asked}}}
        answer = await client.AuthorizationV1Api(self.hub).create_self_subject_access_review(review)
        return bool(answer.status.allowed)

    @asynccontextmanager
    async def published(self, uuids: list[str]) -> AsyncIterator[None]:
        """What NVIDIA's DRA driver publishes for MIG devices that stand when it starts, and the class that picks them."""
        attributes = f"device.attributes['{DRIVER}']"
        picked = [{"cel": {"expression": f"device.driver == '{DRIVER}' && {attributes}.type == 'mig'"}}]
        made = {"metadata": {"name": self.device_class}, "spec": {"selectors": picked}}
        await self.resource.create_device_class(made)
        pool = {"name": self.node, "generation": 1, "resourceSliceCount": 1}
        devices = [_published(start, uuid) for start, uuid in enumerate(uuids)]
        spec = {"nodeName": self.node, "driver": DRIVER, "pool": pool, "devices": devices}
        name = f"{self.node}-{DRIVER}"
        await self.resource.create_resource_slice({"metadata": {"name": name}, "spec": spec})
        try:
            yield
        finally:
            await self.resource.delete_resource_slice(name)
            await self.resource.delete_device_class(self.device_class)

    @asynccontextmanager
    async def running(self, folder: Path, **capacity: str) -> AsyncIterator[Kubelet]:
        """The node, with a kubelet whose device plugin gives every pod the same device."""
        spec = NodeSpec(self.node, capacity={"cpu": "4", **capacity})
        given = {"NVIDIA_VISIBLE_DEVICES": GIVEN}
        # The pods' processes are real, the scheduler is the cluster's own.
        async with Kubelet(
            self.admin_kubeconfig, [spec], state_dir=folder, schedule=False, extra_env=lambda _: given
        ) as kubelet:
            yield kubelet


def _published(start: int, uuid: str) -> dict[str, Any]:
    strings = {
        "type": "mig",
        "uuid": uuid,
        "parentUUID": "GPU-0d9e4a1c-0000-5000-8000-000000000000",
        "profile": "1g.10gb",
        "productName": "NVIDIA A100-SXM4-80GB",
        "brand": "Nvidia",
        "architecture": "Ampere",
    }
    versions = {"driverVersion": "570.133.20", "cudaDriverVersion": "12.8.0", "cudaComputeCapability": "8.0.0"}
    attributes: dict[str, Any] = {name: {"string": value} for name, value in strings.items()}
    attributes |= {name: {"version": value} for name, value in versions.items()}
    capacity = {"memory": {"value": "9728Mi"}, "multiprocessors": {"value": "14"}, "copyEngines": {"value": "1"}}
    return {"name": f"gpu-0-mig-19-{start}-1", "attributes": attributes, "capacity": capacity}


@pytest.fixture
async def corner(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Corner]:
    paths = control_plane.kubeconfig(tmp_path / "admin.yaml"), control_plane.kubeconfig(tmp_path / "hub.yaml", HUB.name)
    async with AsyncExitStack() as stack:
        admin, hub = [await stack.enter_async_context(await config.new_client_from_config(str(p))) for p in paths]
        made = Corner(f"test-{secrets.token_hex(4)}", admin, hub, *paths)
        await made.core.create_namespace({"metadata": {"name": made.namespace}})

        async def has_account() -> bool:
            accounts = await made.core.list_namespaced_service_account(made.namespace)
            return any(account.metadata.name == "default" for account in accounts.items)

        await eventually(has_account, "the default service account")
        await made.allow("hub", HUB_RULES)
        yield made
        for name in await made.pods():
            await made.core.delete_namespaced_pod(name, made.namespace, grace_period_seconds=0)
        for node in (await made.core.list_node()).items:
            if node.metadata.name == made.node:
                await made.core.delete_node(made.node)
        await made.core.delete_namespace(made.namespace)
