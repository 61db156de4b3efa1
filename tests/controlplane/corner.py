"""A corner of the shared control plane: a namespace of a test's own, seen by the admin and by the hub.

from tests.controlplane.corner import corner  # in a conftest.py that has `control_plane`
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from mig_spawner.testing.controlplane.run import HUB, ControlPlane
from mig_spawner.testing.process import until

DEADLINE_S = 30.0


@dataclass
class Corner:
    """A namespace of the test's own, seen by the admin and by the hub."""

    namespace: str
    admin: client.ApiClient
    hub: client.ApiClient

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

    async def make_node(self, capacity: dict[str, str]) -> str:
        """A node by hand, ready and without taints, as a kubelet would have it."""
        name = f"node-{self.namespace}"
        await self.core.create_node({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        ready = {"type": "Ready", "status": "True", "reason": "ByHand", "message": "made by a test"}
        capacity = {"cpu": "4", "memory": "8Gi", "pods": "10", **capacity}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        await self.core.patch_node_status(name, {"status": status})
        await self.core.patch_node(name, {"spec": {"taints": None}})
        return name

    async def make_pod(self, name: str, node: str, limits: dict[str, str] | None = None, **spec: Any) -> Any:
        container = {"name": "notebook", "image": "demo/notebook:1", "resources": {"limits": limits or {}}}
        spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}, **spec}
        pod = {"metadata": {"name": name}, "spec": spec}
        return await self.core.create_namespaced_pod(self.namespace, pod, field_validation="Strict")

    async def node_of(self, name: str) -> str | None:
        node: str | None = (await self.core.read_namespaced_pod(name, self.namespace)).spec.node_name
        return node

    async def refusal_of_scheduler(self, name: str) -> str | None:
        """What the scheduler says about a pod that waits."""
        pod = await self.core.read_namespaced_pod(name, self.namespace)
        for condition in pod.status.conditions or []:
            if condition.type == "PodScheduled" and condition.status == "False":
                return str(condition.message)
        return None


@pytest.fixture
async def corner(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Corner]:
    admin = await config.new_client_from_config(str(control_plane.kubeconfig(tmp_path / "admin.yaml")))
    hub = await config.new_client_from_config(str(control_plane.kubeconfig(tmp_path / "hub.yaml", HUB.name)))
    async with admin, hub:
        made = Corner(f"test-{secrets.token_hex(4)}", admin, hub)
        await made.core.create_namespace({"metadata": {"name": made.namespace}})

        async def has_account() -> bool:
            accounts = await made.core.list_namespaced_service_account(made.namespace)
            return any(account.metadata.name == "default" for account in accounts.items)

        await eventually(has_account, "the default service account")
        yield made
        for pod in (await made.core.list_namespaced_pod(made.namespace)).items:
            await made.core.delete_namespaced_pod(pod.metadata.name, made.namespace, grace_period_seconds=0)
        for node in (await made.core.list_node()).items:
            if node.metadata.name.endswith(made.namespace):
                await made.core.delete_node(node.metadata.name)
        await made.core.delete_namespace(made.namespace)


async def status_of(answer: Awaitable[Any], *possible: int) -> int:
    """The HTTP status of an answer, which must be 200 or one of these."""
    try:
        await answer
    except client.ApiException as error:
        if error.status not in possible:
            raise
        return int(error.status)
    return 200


async def eventually(check: Callable[[], Awaitable[Any]], what: str) -> Any:
    return await until(check, timeout_s=DEADLINE_S, seen=f"{what} did not come about within {DEADLINE_S:g} s")
