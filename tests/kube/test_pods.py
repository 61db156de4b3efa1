"""Pods, their resources and where they may run: MIG devices, quotas, priorities, nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

MIG = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"limits": {MIG: "500m"}}, "must be an integer"),
        ({"limits": {MIG: "1"}, "requests": {MIG: "2"}}, f"must be equal to {MIG} limit"),
        ({"limits": {MIG: "2"}, "requests": {MIG: "1"}}, f"must be equal to {MIG} limit"),
        ({"requests": {MIG: "1"}}, "Limit must be set for non overcommitable resources"),
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}, "must be less than or equal to cpu limit"),
        ({"limits": {"memory": "-1Gi"}}, "must be greater than or equal to 0"),
    ],
    ids=["half-a-device", "more-than-limit", "less-than-limit", "no-limit", "cpu-over-limit", "negative"],
)
async def test_impossible_resources_are_invalid(cluster: Cluster, resources: dict[str, Any], message: str) -> None:
    with cluster.refused(422) as refusal:
        await cluster.create_pod(resources=resources)
    assert message in refusal.message


async def test_a_quantity_that_cannot_be_read_is_a_bad_request(cluster: Cluster) -> None:
    with cluster.refused(400):
        await cluster.create_pod(resources={"limits": {"memory": "12 bananas"}})


async def test_a_limit_is_a_request_as_well(cluster: Cluster) -> None:
    pod = await cluster.create_pod(resources={"limits": {MIG: "1", "cpu": "2"}, "requests": {"cpu": "1"}})
    assert pod.spec.containers[0].resources.requests == {MIG: "1", "cpu": "1"}


async def test_the_status_names_what_a_device_plugin_gave(cluster: Cluster) -> None:
    await cluster.create_pod(resources={"limits": {MIG: "1"}})
    container = {"name": "notebook", "image": "a", "imageID": "a", "ready": True, "restartCount": 0}
    given = [{"name": MIG, "resources": [{"resourceID": "MIG-1", "health": "Healthy"}]}]
    status = {"status": {"containerStatuses": [{**container, "allocatedResourcesStatus": given}]}}
    await cluster.core.patch_namespaced_pod_status("one", cluster.namespace, status)
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    [resource] = pod.status.container_statuses[0].allocated_resources_status
    assert [(r.resource_id, r.health) for r in resource.resources] == [("MIG-1", "Healthy")]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "spec.containers[0].name"),
        ({"name": "Upper"}, "spec.containers[0].name"),
        ({"image": ""}, "spec.containers[0].image"),
        ({"volumeMounts": [{"name": "none", "mountPath": "/x"}]}, "spec.containers[0].volumeMounts[0].name"),
        ({"env": [{"name": "BAD=1"}]}, "spec.containers[0].env[0].name"),
        ({"ports": [{"containerPort": 70000}]}, "spec.containers[0].ports[0].containerPort"),
    ],
)
async def test_a_bad_container_is_invalid(cluster: Cluster, change: dict[str, Any], field: str) -> None:
    body = cluster.pod()
    body["spec"]["containers"][0] |= change
    with cluster.refused(422) as refusal:
        await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert field in {cause["field"] for cause in refusal.causes}


@pytest.mark.parametrize("change", [{"containers": []}, {"restartPolicy": "Sometimes"}], ids=str)
async def test_a_bad_pod_is_invalid(cluster: Cluster, change: dict[str, Any]) -> None:
    body = cluster.pod()
    body["spec"] |= change
    with cluster.refused(422):
        await cluster.core.create_namespaced_pod(cluster.namespace, body)


@pytest.mark.parametrize(
    "change",
    [
        {"containers": "notebook"},
        {"containers": [{"name": "notebook", "image": 1}]},
        {"containers": [{"name": "notebook", "image": "a", "env": [{"name": "A", "value": 1}]}]},
        {"nodeSelector": ["a"]},
    ],
    ids=["containers-text", "image-number", "env-number", "selector-list"],
)
async def test_a_field_of_the_wrong_type_is_a_bad_request(cluster: Cluster, change: dict[str, Any]) -> None:
    body = cluster.pod()
    body["spec"] |= change
    with cluster.refused(400):
        await cluster.core.create_namespaced_pod(cluster.namespace, body)


async def test_two_containers_may_not_share_a_name(cluster: Cluster) -> None:
    body = cluster.pod()
    body["spec"]["containers"] *= 2
    with cluster.refused(422) as refusal:
        await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert "Duplicate value" in refusal.message


async def test_an_unknown_priority_class_is_forbidden(cluster: Cluster) -> None:
    with cluster.refused(403) as refusal:
        await cluster.create_pod(priorityClassName="no-such-class")
    assert "no PriorityClass with name no-such-class was found" in refusal.message


async def test_a_priority_class_gives_its_value(cluster: Cluster) -> None:
    scheduling, name = cluster.api(client.SchedulingV1Api), f"high-{cluster.namespace}"
    await scheduling.create_priority_class({"metadata": {"name": name}, "value": 1000})
    try:
        pod = await cluster.wait_until_allowed(lambda: cluster.create_pod(priorityClassName=name))
        assert pod.spec.priority == 1000
    finally:
        await scheduling.delete_priority_class(name)


async def test_an_unknown_runtime_class_is_forbidden(cluster: Cluster) -> None:
    with cluster.refused(403) as refusal:
        await cluster.create_pod(runtimeClassName="no-such-class")
    assert 'RuntimeClass "no-such-class" not found' in refusal.message


async def test_an_unknown_service_account_is_forbidden(cluster: Cluster) -> None:
    with cluster.refused(403) as refusal:
        await cluster.create_pod(serviceAccountName="nobody")
    assert "service account" in refusal.message


async def make_quota(cluster: Cluster, hard: dict[str, str]) -> None:
    body = {"metadata": {"name": "gpu"}, "spec": {"hard": hard}}
    await cluster.core.create_namespaced_resource_quota(cluster.namespace, body)
    await wait_for_quota(cluster, dict.fromkeys(hard, "0"))


async def wait_for_quota(cluster: Cluster, used: dict[str, str]) -> None:
    async def is_counted() -> bool:
        quota = await cluster.core.read_namespaced_resource_quota("gpu", cluster.namespace)
        return bool((quota.status.used or {}) == used)

    await cluster.wait_for(is_counted, f"the quota's count of {used}")


async def test_a_quota_on_mig_devices_holds(cluster: Cluster) -> None:
    await make_quota(cluster, {f"requests.{MIG}": "1"})
    mig = {"limits": {MIG: "1"}}
    await cluster.create_pod("one", resources=mig)
    with cluster.refused(403) as refusal:
        await cluster.create_pod("two", resources=mig)
    assert refusal.message == (
        f'pods "two" is forbidden: exceeded quota: gpu, requested: requests.{MIG}=1,'
        f" used: requests.{MIG}=1, limited: requests.{MIG}=1"
    )


async def test_a_deleted_pod_gives_its_quota_back(cluster: Cluster) -> None:
    await make_quota(cluster, {"pods": "1"})
    await cluster.create_pod("one", nodeSelector={"no": "such-node"})
    await wait_for_quota(cluster, {"pods": "1"})
    with cluster.refused(403):
        await cluster.create_pod("two")
    await cluster.core.delete_namespaced_pod("one", cluster.namespace)
    await wait_for_quota(cluster, {"pods": "0"})
    await cluster.create_pod("two")


async def test_a_quota_on_memory_wants_every_pod_to_say(cluster: Cluster) -> None:
    await make_quota(cluster, {"limits.memory": "1Gi"})
    with cluster.refused(403) as refusal:
        await cluster.create_pod()
    assert "must specify limits.memory" in refusal.message
    await cluster.create_pod(resources={"limits": {"memory": "512Mi"}})


async def test_a_binding_puts_a_pod_on_a_node(cluster: Cluster) -> None:
    await cluster.create_pod(schedulerName="none")
    await cluster.bind("one", "gpu-node")
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    assert pod.spec.node_name == "gpu-node"
    assert {condition.type: condition.status for condition in pod.status.conditions} == {"PodScheduled": "True"}


async def test_a_bound_pod_cannot_be_bound_again(cluster: Cluster) -> None:
    await cluster.create_pod(schedulerName="none")
    await cluster.bind("one", "gpu-node")
    with cluster.refused(409) as refusal:
        await cluster.bind("one", "other-node")
    assert "already assigned to node" in refusal.message


async def test_a_node_tells_its_mig_devices(cluster: Cluster) -> None:
    name = f"node-{cluster.suffix}"
    await cluster.core.create_node({"metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true"}}})
    room = {MIG: "7", "cpu": "8"}
    await cluster.core.patch_node_status(name, {"status": {"capacity": room, "allocatable": room}})
    node = await cluster.core.read_node(name)
    assert node.status.allocatable[MIG] == "7"
    found = await cluster.core.list_node(label_selector="nvidia.com/gpu.present=true")
    assert name in {node.metadata.name for node in found.items}


async def test_a_node_can_be_cordoned(cluster: Cluster) -> None:
    name = f"node-{cluster.suffix}"
    await cluster.core.create_node({"metadata": {"name": name}})
    await cluster.core.patch_node(name, {"spec": {"unschedulable": True}})
    found = await cluster.core.list_node(field_selector="spec.unschedulable=true")
    assert name in {node.metadata.name for node in found.items}
