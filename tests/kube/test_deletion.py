"""How objects go: grace, finalizers, preconditions, owners, eviction, whole collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster


async def exists(cluster: Cluster, name: str = "one") -> bool:
    found = await cluster.core.list_namespaced_pod(cluster.namespace, field_selector=f"metadata.name={name}")
    return bool(found.items)


async def wait_until_gone(cluster: Cluster, name: str = "one") -> None:
    async def is_gone() -> bool:
        return not await exists(cluster, name)

    await cluster.wait_for(is_gone, f"the end of pod {name}")


async def create_bound_pod(cluster: Cluster, name: str = "one", **spec: Any) -> Any:
    # A node that is not there, so that no kubelet answers.
    return await cluster.create_pod(name, nodeName="nowhere", **spec)


async def test_a_pod_without_a_node_goes_at_once(cluster: Cluster) -> None:
    await cluster.create_pod(nodeSelector={"no": "such-node"})
    await cluster.core.delete_namespaced_pod("one", cluster.namespace)
    assert not await exists(cluster)


async def test_a_pod_on_a_node_waits_for_its_kubelet(cluster: Cluster) -> None:
    await create_bound_pod(cluster)
    answer = await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=7)
    assert answer.metadata.deletion_grace_period_seconds == 7
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    assert pod.metadata.deletion_timestamp is not None


async def test_the_pod_says_how_long_its_grace_is(cluster: Cluster) -> None:
    await create_bound_pod(cluster, terminationGracePeriodSeconds=3)
    answer = await cluster.core.delete_namespaced_pod("one", cluster.namespace)
    assert answer.metadata.deletion_grace_period_seconds == 3


async def test_grace_may_be_shortened_and_not_lengthened(cluster: Cluster) -> None:
    await create_bound_pod(cluster)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=20)
    for asked, granted in ((50, 20), (5, 5)):
        await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=asked)
        pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
        assert pod.metadata.deletion_grace_period_seconds == granted


async def test_no_grace_ends_a_pod_at_once(cluster: Cluster) -> None:
    await create_bound_pod(cluster)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=0)
    assert not await exists(cluster)


async def test_a_finished_pod_goes_at_once(cluster: Cluster) -> None:
    await create_bound_pod(cluster)
    await cluster.core.patch_namespaced_pod_status("one", cluster.namespace, {"status": {"phase": "Succeeded"}})
    await cluster.core.delete_namespaced_pod("one", cluster.namespace)
    assert not await exists(cluster)


async def test_a_finalizer_holds_an_object_until_it_is_lifted(cluster: Cluster) -> None:
    body = cluster.pod(nodeSelector={"no": "such-node"})
    body["metadata"]["finalizers"] = ["example.com/hold"]
    await cluster.core.create_namespaced_pod(cluster.namespace, body)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=0)
    held = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    assert held.metadata.deletion_timestamp is not None
    steps = [{"op": "remove", "path": "/metadata/finalizers"}]
    await cluster.core.patch_namespaced_pod("one", cluster.namespace, steps)
    await wait_until_gone(cluster)


async def test_the_uid_of_another_spares_an_object(cluster: Cluster) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="00000000-0000-4000-8000-000000000000"))
    with cluster.refused(409):
        await cluster.core.delete_namespaced_pod("one", cluster.namespace, body=wrong)
    right = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=pod.metadata.uid))
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, body=right)
    assert not await exists(cluster)


@pytest.mark.parametrize(
    ("plural", "answer"),
    [
        ("configmaps", "Status"),
        ("secrets", "Status"),
        ("serviceaccounts", "ServiceAccount"),
        ("resourcequotas", "ResourceQuota"),
    ],
)
async def test_a_deletion_is_answered_with_the_object_or_a_status(cluster: Cluster, plural: str, answer: str) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/{plural}"
    _, made = await cluster.ask("POST", path, {"metadata": {"name": "a"}})
    code, told = await cluster.ask("DELETE", f"{path}/a")
    assert (code, told["kind"]) == (200, answer)
    assert (told["details"] if answer == "Status" else told["metadata"])["uid"] == made["metadata"]["uid"]


async def test_an_eviction_deletes_a_pod(cluster: Cluster) -> None:
    await cluster.create_pod(nodeSelector={"no": "such-node"})
    eviction = {"metadata": {"name": "one", "namespace": cluster.namespace}}
    await cluster.core.create_namespaced_pod_eviction("one", cluster.namespace, eviction, _preload_content=False)
    await wait_until_gone(cluster)


async def test_a_collection_is_deleted_by_its_labels(cluster: Cluster) -> None:
    for name, app in (("a", "mine"), ("b", "mine"), ("c", "other")):
        await cluster.create_pod(name, labels={"app": app}, nodeSelector={"no": "such-node"})
    await cluster.core.delete_collection_namespaced_pod(cluster.namespace, label_selector="app=mine")
    await wait_until_gone(cluster, "a")
    await wait_until_gone(cluster, "b")
    assert await exists(cluster, "c")


async def test_what_a_pod_owns_goes_with_it(cluster: Cluster) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": pod.metadata.uid}
    body = {"metadata": {"name": "owned", "ownerReferences": [owner]}}
    await cluster.core.create_namespaced_secret(cluster.namespace, body)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace)

    async def is_gone() -> bool:
        secrets = await cluster.core.list_namespaced_secret(cluster.namespace)
        return "owned" not in {secret.metadata.name for secret in secrets.items}

    await cluster.wait_for(is_gone, "the end of the owned secret")


async def test_a_claim_in_use_stays_until_its_pod_is_gone(cluster: Cluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": "home"}, "spec": spec}
    await cluster.core.create_namespaced_persistent_volume_claim(cluster.namespace, body)
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    await create_bound_pod(cluster, volumes=volumes)

    async def is_seen_in_use() -> bool:
        claim = await cluster.core.read_namespaced_persistent_volume_claim("home", cluster.namespace)
        return claim.metadata.finalizers is not None

    async def is_gone() -> bool:
        return not (await cluster.core.list_namespaced_persistent_volume_claim(cluster.namespace)).items

    await cluster.core.delete_namespaced_persistent_volume_claim("home", cluster.namespace)
    assert await is_seen_in_use()
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=0)
    await cluster.wait_for(is_gone, "the end of the claim")


async def test_a_namespace_takes_its_content_along(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-inner"
    await cluster.core.create_namespace({"metadata": {"name": name}})
    await cluster.core.create_namespaced_config_map(name, {"metadata": {"name": "m"}})
    await cluster.core.delete_namespace(name)

    async def is_gone() -> bool:
        return name not in {found.metadata.name for found in (await cluster.core.list_namespace()).items}

    await cluster.wait_for(is_gone, "the end of the namespace")
    with cluster.refused(404):
        await cluster.core.read_namespaced_config_map("m", name)


async def test_nothing_is_created_in_a_namespace_that_ends(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-ending"
    await cluster.core.create_namespace({"metadata": {"name": name}})
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await cluster.core.create_namespaced_config_map(name, held)
    await cluster.core.delete_namespace(name)
    with cluster.refused(403) as refusal:
        await cluster.core.create_namespaced_config_map(name, {"metadata": {"name": "late"}})
    assert "because it is being terminated" in refusal.message
    await cluster.core.patch_namespaced_config_map("held", name, [{"op": "remove", "path": "/metadata/finalizers"}])
