"""Dynamic resource allocation: the kinds of it are there, and where there is a real scheduler it allocates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client

if TYPE_CHECKING:
    from mig_spawner.testing.kube import Kubelet
    from tests.kube.conftest import Cluster

DRIVER = "gpu.nvidia.com"
UUIDS = [f"MIG-{number}d9e4a1c-0000-5000-8000-000000000000" for number in range(2)]


@dataclass
class Devices:
    """A class of devices, and the slice in which a driver publishes those of one node."""

    api: Any
    device_class: str
    node: str

    def claim(self, uuid: str) -> dict[str, Any]:
        """The spec of a claim for one device."""
        return self.selecting(f"device.attributes['{DRIVER}'].uuid == '{uuid}'")

    def selecting(self, expression: str) -> dict[str, Any]:
        exactly = {"deviceClassName": self.device_class, "selectors": [{"cel": {"expression": expression}}]}
        return {"devices": {"requests": [{"name": "mig", "exactly": exactly}]}}


@pytest.fixture
async def devices(cluster: Cluster) -> AsyncIterator[Devices]:
    api = cluster.api(client.ResourceV1Api)
    made = Devices(api, f"mig-{cluster.suffix}.nvidia.com", f"gpu-a-{cluster.suffix}")
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    await api.create_device_class({"metadata": {"name": made.device_class}, "spec": {"selectors": selectors}})
    published = [
        {"name": f"gpu-0-mig-19-{start}-1", "attributes": {"type": {"string": "mig"}, "uuid": {"string": uuid}}}
        for start, uuid in enumerate(UUIDS)
    ]
    pool = {"name": made.node, "generation": 1, "resourceSliceCount": 1}
    spec = {"nodeName": made.node, "driver": DRIVER, "pool": pool, "devices": published}
    await api.create_resource_slice({"metadata": {"name": made.node}, "spec": spec})
    yield made
    await api.delete_resource_slice(made.node)
    await api.delete_device_class(made.device_class)


async def test_slices_tell_the_devices_of_a_node(cluster: Cluster, devices: Devices) -> None:
    selector = f"spec.nodeName={devices.node}"
    [found] = (await devices.api.list_resource_slice(field_selector=selector)).items
    told = [(device.name, device.attributes["uuid"].string) for device in found.spec.devices]
    assert told == [(f"gpu-0-mig-19-{start}-1", uuid) for start, uuid in enumerate(UUIDS)]


async def test_claims_and_templates_are_kept_and_deleted(cluster: Cluster, devices: Devices) -> None:
    api, namespace = devices.api, cluster.namespace
    claim, metadata = devices.claim(UUIDS[0]), {"name": "slice"}
    await api.create_namespaced_resource_claim(namespace, {"metadata": metadata, "spec": claim})
    await api.create_namespaced_resource_claim_template(namespace, {"metadata": metadata, "spec": {"spec": claim}})
    found = await api.read_namespaced_resource_claim("slice", namespace)
    assert found.spec.devices.requests[0].exactly.device_class_name == devices.device_class
    template = await api.read_namespaced_resource_claim_template("slice", namespace)
    assert template.spec.spec.devices.requests[0].name == "mig"
    await api.delete_namespaced_resource_claim("slice", namespace)
    with cluster.refused(404) as refusal:
        await api.read_namespaced_resource_claim("slice", namespace)
    assert refusal.message == 'resourceclaims.resource.k8s.io "slice" not found'


async def test_a_claim_goes_with_the_pod_that_owns_it(cluster: Cluster, devices: Devices) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": pod.metadata.uid}
    body = {"metadata": {"name": "slice", "ownerReferences": [owner]}, "spec": devices.claim(UUIDS[0])}
    await devices.api.create_namespaced_resource_claim(cluster.namespace, body)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace)

    async def is_gone() -> bool:
        return not (await devices.api.list_namespaced_resource_claim(cluster.namespace)).items

    await cluster.wait_for(is_gone, "the end of the claim")


async def test_an_expression_that_cannot_be_read_is_invalid(cluster: Cluster, devices: Devices) -> None:
    spec = devices.selecting("device.attributes[")
    with cluster.refused(422) as refusal:
        await devices.api.create_namespaced_resource_claim(
            cluster.namespace, {"metadata": {"name": "bad"}, "spec": spec}
        )
    assert "Syntax error" in refusal.message


async def test_the_device_that_a_claim_selects_is_allocated(
    cluster: Cluster, devices: Devices, kubelet: Kubelet
) -> None:
    body = {"metadata": {"name": "slice"}, "spec": {"spec": devices.claim(UUIDS[1])}}
    await devices.api.create_namespaced_resource_claim_template(cluster.namespace, body)
    await cluster.create_pod(resourceClaims=[{"name": "mig", "resourceClaimTemplateName": "slice"}])

    async def node() -> str | None:
        found: str | None = (await cluster.core.read_namespaced_pod("one", cluster.namespace)).spec.node_name
        return found

    assert await cluster.wait_for(node, "a node") == devices.node
    claims = (await devices.api.list_namespaced_resource_claim(cluster.namespace)).items
    allocated = [result for claim in claims for result in claim.status.allocation.devices.results]
    told = [(result.driver, result.pool, result.device) for result in allocated]
    assert told == [(DRIVER, devices.node, "gpu-0-mig-19-1-1")]
