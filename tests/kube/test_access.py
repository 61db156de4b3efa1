"""Who may do what: tokens and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes_asyncio import client, config

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

HUB_USER = "system:serviceaccount:hub:hub"


async def test_an_unknown_token_is_unauthorized(cluster: Cluster) -> None:
    async with await config.new_client_from_config(str(cluster.stranger_kubeconfig)) as stranger:
        with cluster.refused(401) as refusal:
            await client.CoreV1Api(stranger).list_namespaced_pod(cluster.namespace)
    assert refusal.reason == "Unauthorized"


async def test_the_hub_may_do_its_work(cluster: Cluster) -> None:
    hub = cluster.hub_core
    await hub.create_namespaced_pod(cluster.namespace, cluster.pod())
    assert (await hub.list_namespaced_pod(cluster.namespace)).items
    await hub.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=0)


async def test_the_hub_may_not_change_pods(cluster: Cluster) -> None:
    await cluster.create_pod()
    with cluster.refused(403) as refusal:
        body = {"metadata": {"labels": {"a": "b"}}}
        await cluster.hub_core.patch_namespaced_pod("one", cluster.namespace, body)
    assert refusal.reason == "Forbidden"
    assert f'User "{HUB_USER}" cannot patch resource "pods" in API group ""' in refusal.message


async def test_the_hub_may_not_write_a_status(cluster: Cluster) -> None:
    await cluster.create_pod()
    with cluster.refused(403) as refusal:
        body = {"status": {"phase": "Running"}}
        await cluster.hub_core.patch_namespaced_pod_status("one", cluster.namespace, body)
    assert 'resource "pods/status"' in refusal.message


async def test_rights_end_at_the_namespace(cluster: Cluster) -> None:
    hub = cluster.hub_core
    with cluster.refused(403):
        await hub.list_namespaced_pod("kube-system")
    with cluster.refused(403) as refusal:
        await hub.list_pod_for_all_namespaces()
    assert "at the cluster scope" in refusal.message
    with cluster.refused(403):
        await hub.list_node()


async def test_rights_follow_the_role(cluster: Cluster) -> None:
    rbac, hub = cluster.api(client.RbacAuthorizationV1Api), cluster.hub_core
    with cluster.refused(403):
        await hub.list_namespaced_config_map(cluster.namespace)
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    await rbac.patch_namespaced_role("hub", cluster.namespace, [{"op": "replace", "path": "/rules", "value": rules}])

    await cluster.wait_until_allowed(lambda: hub.list_namespaced_config_map(cluster.namespace))
    with cluster.refused(403):
        await hub.list_namespaced_pod(cluster.namespace)


async def test_a_right_may_be_for_one_object_only(cluster: Cluster) -> None:
    rbac, hub = cluster.api(client.RbacAuthorizationV1Api), cluster.hub_core
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get"]}]
    await rbac.patch_namespaced_role("hub", cluster.namespace, [{"op": "replace", "path": "/rules", "value": rules}])
    for name in ("mine", "other"):
        await cluster.core.create_namespaced_config_map(cluster.namespace, {"metadata": {"name": name}})

    await cluster.wait_until_allowed(lambda: hub.read_namespaced_config_map("mine", cluster.namespace))
    with cluster.refused(403):
        await hub.read_namespaced_config_map("other", cluster.namespace)


async def test_one_can_ask_for_ones_rights(cluster: Cluster) -> None:
    async def may(verb: str, resource: str) -> bool:
        asked = {"spec": {"resourceAttributes": {"namespace": cluster.namespace, "verb": verb, "resource": resource}}}
        review = await cluster.api(client.AuthorizationV1Api, as_hub=True).create_self_subject_access_review(asked)
        return bool(review.status.allowed)

    assert await may("create", "pods")
    assert not await may("patch", "pods")
    assert not await may("list", "configmaps")
