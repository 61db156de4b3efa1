"""What only a real control plane does: rights, strict fields, scheduling, quota, collection, dynamic resource allocation."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from mig_spawner.testing.controlplane.run import HUB, ControlPlane
from tests.controlplane.corner import Corner, eventually, status_of

pytestmark = pytest.mark.controlplane

MIG = "nvidia.com/mig-1g.10gb"
DRIVER = "gpu.nvidia.com"
UUIDS = [f"MIG-{number}d9e4a1c-0000-5000-8000-000000000000" for number in range(3)]


async def test_dynamic_resource_allocation_is_there_in_its_final_version(corner: Corner) -> None:
    found = await corner.resource.get_api_resources()
    assert found.group_version == "resource.k8s.io/v1"
    names = {resource.name for resource in found.resources}
    assert names >= {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"}


async def test_the_scheduler_places_pods_and_says_what_is_short(corner: Corner) -> None:
    node = await corner.make_node({MIG: "1"})
    await corner.make_pod("first", node, {MIG: "1"})
    assert await eventually(lambda: corner.node_of("first"), "a node") == node
    await corner.make_pod("second", node, {MIG: "1"})
    said = await eventually(lambda: corner.refusal_of_scheduler("second"), "a refusal")
    assert f"1 Insufficient {MIG}" in said
    await corner.core.delete_namespaced_pod("first", corner.namespace, grace_period_seconds=0)
    assert await eventually(lambda: corner.node_of("second"), "a node") == node


async def test_an_unknown_field_is_refused_if_asked_to(corner: Corner) -> None:
    with pytest.raises(client.ApiException) as refused:
        await corner.make_pod("misspelt", "nowhere", nodeSelectr={})
    assert refused.value.status == 400
    assert 'unknown field "spec.nodeSelectr"' in json.loads(str(refused.value.body))["message"]


async def test_who_has_no_right_is_refused_until_a_role_grants_it(corner: Corner) -> None:
    core = client.CoreV1Api(corner.hub)
    with pytest.raises(client.ApiException) as refused:
        await core.list_namespaced_pod(corner.namespace)
    assert refused.value.status == 403
    said = json.loads(str(refused.value.body))["message"]
    assert f'User "{HUB.name}" cannot list resource "pods"' in said
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    await corner.rbac.create_namespaced_role(corner.namespace, {"metadata": {"name": "hub"}, "rules": rules})
    binding = {
        "metadata": {"name": "hub"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hub"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "hub", "name": "hub"}],
    }
    await corner.rbac.create_namespaced_role_binding(corner.namespace, binding)

    async def may() -> bool:
        return await status_of(core.list_namespaced_pod(corner.namespace), 403) == 200

    await eventually(may, "the right to list pods")
    with pytest.raises(client.ApiException) as refused:
        await core.delete_namespaced_pod("one", corner.namespace)
    assert refused.value.status == 403


async def test_whom_it_does_not_know_is_turned_away(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = control_plane.write_kubeconfig(tmp_path / "stranger.yaml", token="nobody")
    async with await config.new_client_from_config(str(path)) as stranger:
        with pytest.raises(client.ApiException) as refused:
            await client.CoreV1Api(stranger).list_namespace()
    assert refused.value.status == 401


async def test_controllers_count_quota_collect_orphans_and_empty_namespaces(corner: Corner) -> None:
    core, namespace = corner.core, corner.namespace
    quota = {"metadata": {"name": "mig"}, "spec": {"hard": {f"requests.{MIG}": "1"}}}
    await core.create_namespaced_resource_quota(namespace, quota)

    async def counted() -> bool:
        found = await core.read_namespaced_resource_quota("mig", namespace)
        return bool(found.status.used)

    await eventually(counted, "a count")
    owner = await corner.make_pod("owner", "nowhere", {MIG: "1"})
    with pytest.raises(client.ApiException, match=f"exceeded quota: mig, requested: requests.{MIG}=1"):
        await corner.make_pod("too-many", "nowhere", {MIG: "1"})
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner.metadata.uid}
    secret = {"metadata": {"name": "owned", "ownerReferences": [reference]}}
    await core.create_namespaced_secret(namespace, secret)
    await core.delete_namespaced_pod("owner", namespace, grace_period_seconds=0)

    async def gone(answer: Awaitable[Any]) -> bool:
        return await status_of(answer, 404) == 404

    await eventually(lambda: gone(core.read_namespaced_secret("owned", namespace)), "the secret's end")
    other = f"{namespace}-other"
    await core.create_namespace({"metadata": {"name": other}})
    await core.delete_namespace(other)
    await eventually(lambda: gone(core.read_namespace(other)), "the namespace's end")


async def test_the_scheduler_allocates_the_one_device_that_a_claim_selects(corner: Corner) -> None:
    """A resource slice as NVIDIA's driver publishes it for MIG devices that stay as they are, and a claim for one by UUID."""
    api, node = corner.resource, await corner.make_node({})
    device_class = f"mig.{corner.namespace}.nvidia.com"
    is_mig = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'mig'"
    selectors = [{"cel": {"expression": is_mig}}]
    await api.create_device_class({"metadata": {"name": device_class}, "spec": {"selectors": selectors}})
    devices = [
        {"name": f"gpu-0-mig-19-{start}-1", "attributes": {"type": {"string": "mig"}, "uuid": {"string": uuid}}}
        for start, uuid in enumerate(UUIDS)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    published = {
        "metadata": {"name": node},
        "spec": {"nodeName": node, "driver": DRIVER, "pool": pool, "devices": devices},
    }
    await api.create_resource_slice(published)
    selected = [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == '{UUIDS[1]}'"}}]
    exactly = {"deviceClassName": device_class, "selectors": selected}
    claim = {"metadata": {"name": "slice"}, "spec": {"devices": {"requests": [{"name": "mig", "exactly": exactly}]}}}
    template = {"metadata": {"name": "slice"}, "spec": {"spec": claim["spec"]}}
    await api.create_namespaced_resource_claim_template(corner.namespace, template)
    claims = [{"name": "mig", "resourceClaimTemplateName": "slice"}]
    await corner.make_pod("one", node, resourceClaims=claims)
    assert await eventually(lambda: corner.node_of("one"), "a node") == node
    [made] = (await api.list_namespaced_resource_claim(corner.namespace)).items
    [result] = made.status.allocation.devices.results
    assert (result.driver, result.pool, result.device) == (DRIVER, node, "gpu-0-mig-19-1-1")

    # The same device again: it is taken, so the pod waits; and the claim goes with its pod.
    await corner.make_pod("two", node, resourceClaims=claims)
    assert "cannot allocate all claims" in await eventually(lambda: corner.refusal_of_scheduler("two"), "a refusal")
    await corner.core.delete_namespaced_pod("one", corner.namespace, grace_period_seconds=0)
    assert await eventually(lambda: corner.node_of("two"), "a node") == node
    await api.delete_resource_slice(node)
    await api.delete_device_class(device_class)
