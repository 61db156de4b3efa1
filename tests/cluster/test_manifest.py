"""Every manifest that is shipped is one that a real API server takes, to the last field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes_asyncio.utils import FailToCreateError, create_from_dict

from tests.cluster import manifest
from tests.cluster.right import account, told
from tests.controlplane.corner import Corner

pytestmark = pytest.mark.controlplane

OBJECTS = [
    pytest.param(found, id=f"{file}-{found['kind']}-{found['metadata']['name']}")
    for file in manifest.FILES
    for found in manifest.read(file)
]
WORKLOADS = [("Deployment", "mig-allocator"), ("DaemonSet", "mig-agent"), ("DaemonSet", "mig-agent-reader")]


async def create(corner: Corner, body: dict[str, Any], **options: Any) -> Any:
    """Create strictly, as `kubectl apply --validate=strict` would."""
    [made] = await create_from_dict(
        corner.admin, body, namespace=corner.namespace, field_validation="Strict", **options
    )
    return made


@pytest.mark.parametrize("body", OBJECTS)
async def test_a_dry_run_of_each_object_is_accepted_and_changes_nothing(corner: Corner, body: dict[str, Any]) -> None:
    made = await create(corner, body, dry_run="All")
    assert made.metadata.name == body["metadata"]["name"]
    assert made.metadata.namespace == corner.namespace
    # A dry run leaves nothing: creating it now is no conflict, and once more it is.
    await create(corner, body)
    with pytest.raises(FailToCreateError, match="AlreadyExists"):
        await create(corner, body, dry_run="All")


async def test_a_misspelt_field_would_be_seen(corner: Corner) -> None:
    body = manifest.find("Deployment", "mig-allocator")
    body["spec"]["template"]["spec"]["containers"][0]["enviroment"] = []
    with pytest.raises(FailToCreateError, match="unknown field"):
        await create(corner, body, dry_run="All")


@pytest.mark.parametrize(("kind", "name"), WORKLOADS, ids=[name for _, name in WORKLOADS])
async def test_the_pods_of_each_workload_are_accepted_with_their_account(corner: Corner, kind: str, name: str) -> None:
    workload, of_it = manifest.find(kind, name), manifest.find("ServiceAccount", name)
    await create(corner, of_it)
    template = copy.deepcopy(workload["spec"]["template"])
    template["spec"].pop("runtimeClassName", None)  # NVIDIA's operator makes it, and this cluster has none
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "one"}}
    made = await create(corner, pod, dry_run="All")
    assert made.spec.service_account_name == name
    selector = workload["spec"]["selector"]["matchLabels"]
    assert selector.items() <= made.metadata.labels.items()
    assert _tokens(made) == (1 if of_it.get("automountServiceAccountToken", True) else 0)


async def test_the_agent_has_no_way_to_ask_kubernetes_anything(corner: Corner) -> None:
    """No role is bound to its account, and its pods get no token of it."""
    agent = manifest.find("ServiceAccount", "mig-agent")
    assert agent["automountServiceAccountToken"] is False
    assert manifest.find("DaemonSet", "mig-agent")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    subjects = [s["name"] for file in manifest.FILES for m in manifest.read(file) for s in m.get("subjects", [])]
    assert "mig-agent" not in subjects
    await create(corner, agent)
    # What every account may do, ours may do and no more.
    other = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other"}}
    await create(corner, other)
    async with account(corner, "mig-agent") as ours, account(corner, "other") as theirs:
        assert await told(ours, corner.namespace) == await told(theirs, corner.namespace)


def _tokens(pod: Any) -> int:
    """How many tokens of its service account a pod gets."""
    projected = [volume.projected for volume in pod.spec.volumes or [] if volume.projected is not None]
    return sum(source.service_account_token is not None for one in projected for source in one.sources)
