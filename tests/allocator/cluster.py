"""A namespace of an API server, embedded or real, in which the allocator has exactly the rights that we ship for it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes_asyncio import client, config

from mig_spawner.allocator import claim
from mig_spawner.allocator.pods.base import LEASE_LABEL
from mig_spawner.testing.controlplane import ControlPlane
from mig_spawner.testing.kube import EmbeddedKube, KubeUser
from mig_spawner.wire.lease import LeaseDocument
from tests.allocator.rig import until
from tests.kube.referee import Referee

ACCOUNT: Final = "mig-allocator"
ADMIN_TOKEN: Final = "admin-token-for-tests"
ALLOCATOR_TOKEN: Final = "allocator-token-for-tests"
ADMINS: Final = "admin.yaml"
OURS: Final = "allocator.yaml"
MANIFESTS: Final = Path(__file__).parents[2] / "hub_config" / "kubernetes" / "allocator.yaml"


class Cluster:
    """The namespace, and pods in it that run because a test says so.

    Attributes:
        kubeconfig: of the allocator's account; `admin_kubeconfig` of somebody who may do all.
        core: the API as the admin.
        cut: end every watch; who wants to go on from before is told 410.
    """

    def __init__(
        self,
        namespace: str,
        folder: Path,
        admin: client.ApiClient,
        cut: Callable[[], Awaitable[None]],
    ) -> None:
        self.namespace = namespace
        self.kubeconfig = str(folder / OURS)
        self.admin_kubeconfig = str(folder / ADMINS)
        self.admin = admin
        self.core: Any = client.CoreV1Api(admin)
        self.cut = cut

    async def pod(
        self,
        name: str,
        lease_id: str | None,
        *,
        env: str = "",
        annotations: dict[str, str] | None = None,
        node: str | None = None,
    ) -> None:
        container: dict[str, Any] = {"name": "notebook", "image": "demo/notebook:1"}
        if env:
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": env}]
        labels = {} if lease_id is None else {LEASE_LABEL: lease_id}
        # Without a node it waits for a scheduler that does not exist.
        spec = {"containers": [container], **({"nodeName": node} if node else {"schedulerName": "nobody"})}
        body = {"metadata": {"name": name, "labels": labels, "annotations": annotations or {}}, "spec": spec}
        await self.core.create_namespaced_pod(self.namespace, body, field_validation="Strict")

    async def phase(self, name: str, phase: str) -> None:
        await self.core.patch_namespaced_pod_status(name, self.namespace, {"status": {"phase": phase}})

    async def give(self, name: str, resource_id: str) -> None:
        """A device plugin gave a pod this, and the kubelet says so."""
        given = [{"name": "nvidia.com/mig-1g.10gb", "resources": [{"resourceID": resource_id, "health": "Healthy"}]}]
        container = {"name": "notebook", "image": "a", "imageID": "a", "ready": True, "restartCount": 0}
        status = {"containerStatuses": [{**container, "allocatedResourcesStatus": given}]}
        await self.core.patch_namespaced_pod_status(name, self.namespace, {"status": status})

    async def delete(self, name: str) -> None:
        await self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)


def annotations_of(lease: LeaseDocument, **changes: str) -> dict[str, str]:
    """What the pod of a lease says of it; `changes` by the last part of a name, `profile=""`."""
    placed = lease.placement
    assert placed is not None
    assert lease.device_uuid is not None
    said = {
        claim.USER_ID: lease.holder.user_id,
        claim.USER_NAME: lease.holder.user_name,
        claim.SERVER_NAME: lease.holder.server_name,
        claim.PROFILE: placed.profile or "",
        claim.DEVICE: lease.device_uuid,
        claim.GPU: placed.gpu_uuid,
        claim.PLACEMENT: f"{placed.start}:{placed.size}",
        claim.CUT: str(placed.cut).lower(),
        claim.GRANTED_AT: placed.granted_at.isoformat(),
        claim.EXPIRES_AT: "" if placed.expires_at is None else placed.expires_at.isoformat(),
    }
    return said | {f"mig-spawner/{name.replace('_', '-')}": value for name, value in changes.items()}


@asynccontextmanager
async def embedded_cluster(folder: Path, referee: Referee | None) -> AsyncIterator[Cluster]:
    """A namespace of an embedded API server that is made for it; the referee judges the pods that were made there."""
    namespace = _namespace()
    users = {
        ADMIN_TOKEN: KubeUser("admin", ("system:masters",)),
        ALLOCATOR_TOKEN: KubeUser(f"system:serviceaccount:{namespace}:{ACCOUNT}", ("system:authenticated",)),
    }
    audit_log = folder / "kubernetes-audit.log"
    async with EmbeddedKube(tokens=users, anonymous=False, audit_log=audit_log) as kube:

        async def cut() -> None:
            kube.forget_history()
            kube.cut_watches()

        admin = kube.write_kubeconfig(folder / ADMINS, token=ADMIN_TOKEN)
        kube.write_kubeconfig(folder / OURS, token=ALLOCATOR_TOKEN, namespace=namespace)
        async with _opened(Cluster(namespace, folder, await _client(admin), cut)) as cluster:
            yield cluster
    if referee is not None:
        referee.judge(audit_log)


@asynccontextmanager
async def real_cluster(plane: ControlPlane, folder: Path) -> AsyncIterator[Cluster]:
    """A namespace of a real API server."""
    namespace = _namespace()
    admin = await _client(plane.kubeconfig(folder / ADMINS))
    async with _opened(Cluster(namespace, folder, admin, plane.cut_watches)) as cluster:
        asked = {"spec": {"expirationSeconds": 3600}}
        made = await cluster.core.create_namespaced_service_account_token(ACCOUNT, namespace, asked)
        plane.write_kubeconfig(folder / OURS, token=made.status.token, namespace=namespace)
        yield cluster


def _namespace() -> str:
    return f"watch-{secrets.token_hex(4)}"


async def _client(kubeconfig: Path) -> client.ApiClient:
    configuration = client.Configuration()
    await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


@asynccontextmanager
async def _opened(cluster: Cluster) -> AsyncIterator[Cluster]:
    core, namespace = cluster.core, cluster.namespace
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster.admin)
        await core.create_namespace({"metadata": {"name": namespace}})
        stack.push_async_callback(core.delete_namespace, namespace)
        await _grant(cluster)

        async def has_account() -> bool:
            accounts = await core.list_namespaced_service_account(namespace)
            return {"default", ACCOUNT} <= {account.metadata.name for account in accounts.items}

        await until(has_account, 30)
        yield cluster
        for pod in (await core.list_namespaced_pod(namespace)).items:
            with contextlib.suppress(client.ApiException):
                await cluster.delete(pod.metadata.name)


async def _grant(cluster: Cluster) -> None:
    """The account of the allocator and its rights, as shipped."""
    rbac: Any = client.RbacAuthorizationV1Api(cluster.admin)
    create = {
        "ServiceAccount": cluster.core.create_namespaced_service_account,
        "Role": rbac.create_namespaced_role,
        "RoleBinding": rbac.create_namespaced_role_binding,
    }
    manifests = await asyncio.to_thread(MANIFESTS.read_text)
    for manifest in yaml.safe_load_all(manifests):
        if manifest["kind"] in create:
            await create[manifest["kind"]](cluster.namespace, manifest)
