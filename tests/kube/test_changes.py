"""Changing objects: replace, the four kinds of patch, and what may not be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubernetes_asyncio import client

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


async def patch(cluster: Cluster, body: Any, content_type: str, name: str = "one", **options: Any) -> Any:
    return await cluster.core.patch_namespaced_pod(name, cluster.namespace, body, _content_type=content_type, **options)


async def apply_map(cluster: Cluster, data: dict[str, str], manager: str, **options: Any) -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}
    return await cluster.core.patch_namespaced_config_map(
        "settings", cluster.namespace, body, _content_type=APPLY_PATCH, field_manager=manager, **options
    )


async def test_a_replacement_of_an_old_revision_is_a_conflict(cluster: Cluster) -> None:
    old = await cluster.create_pod()
    await patch(cluster, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    old.metadata.labels = {"mine": "yes"}
    with cluster.refused(409) as refusal:
        await cluster.core.replace_namespaced_pod("one", cluster.namespace, old)
    assert refusal.reason == "Conflict"
    assert "the object has been modified" in refusal.message


async def test_a_replacement_of_the_current_revision_is_taken(cluster: Cluster) -> None:
    pod = await cluster.create_pod(schedulerName="none")
    pod.metadata.labels = {"mine": "yes"}
    changed = await cluster.core.replace_namespaced_pod("one", cluster.namespace, pod)
    assert changed.metadata.labels == {"mine": "yes"}
    assert changed.metadata.uid == pod.metadata.uid
    assert int(changed.metadata.resource_version) > int(pod.metadata.resource_version)


async def test_a_change_that_changes_nothing_keeps_the_revision(cluster: Cluster) -> None:
    pod = await cluster.create_pod(labels={"a": "b"}, nodeSelector={"no": "such-node"})
    before = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    same = await patch(cluster, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    assert same.metadata.uid == pod.metadata.uid
    assert same.metadata.labels == before.metadata.labels


async def test_a_merge_patch_sets_and_removes(cluster: Cluster) -> None:
    await cluster.create_pod(labels={"keep": "1", "drop": "1"})
    changed = await patch(cluster, {"metadata": {"labels": {"drop": None, "new": "1"}}}, MERGE_PATCH)
    assert changed.metadata.labels == {"keep": "1", "new": "1"}


async def test_a_json_patch_goes_step_by_step(cluster: Cluster) -> None:
    await cluster.create_pod(labels={"a": "1"})
    steps = [
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "add", "path": "/metadata/labels/b", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/a"},
    ]
    changed = await patch(cluster, steps, JSON_PATCH)
    assert changed.metadata.labels == {"b": "2"}


async def test_a_json_patch_whose_test_fails_changes_nothing(cluster: Cluster) -> None:
    await cluster.create_pod(labels={"a": "1"})
    steps = [
        {"op": "test", "path": "/metadata/labels/a", "value": "2"},
        {"op": "remove", "path": "/metadata/labels/a"},
    ]
    with cluster.refused(422):
        await patch(cluster, steps, JSON_PATCH)
    assert (await cluster.core.read_namespaced_pod("one", cluster.namespace)).metadata.labels == {"a": "1"}


async def test_a_strategic_patch_finds_containers_by_name(cluster: Cluster) -> None:
    await cluster.create_pod()
    body = {"spec": {"containers": [{"name": "notebook", "image": "demo/notebook:2"}]}}
    changed = await patch(cluster, body, STRATEGIC_PATCH)
    assert len(changed.spec.containers) == 1
    assert changed.spec.containers[0].image == "demo/notebook:2"
    assert changed.spec.containers[0].termination_message_path == "/dev/termination-log"


async def test_a_strategic_patch_of_conditions_keeps_the_others(cluster: Cluster) -> None:
    await cluster.create_pod(nodeSelector={"no": "such-node"})
    for kind in ("Ready", "Initialized", "Ready"):
        body = {"status": {"conditions": [{"type": kind, "status": "False"}]}}
        await cluster.core.patch_namespaced_pod_status("one", cluster.namespace, body, _content_type=STRATEGIC_PATCH)
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    kinds = [condition.type for condition in pod.status.conditions]
    assert sorted(kind for kind in kinds if kind != "PodScheduled") == ["Initialized", "Ready"]


async def test_an_unknown_kind_of_patch_is_refused(cluster: Cluster) -> None:
    await cluster.create_pod()
    with cluster.refused(415):
        await patch(cluster, {"metadata": {}}, "application/unheard-of+json")


async def test_applying_creates_and_then_changes(cluster: Cluster) -> None:
    made = await apply_map(cluster, {"a": "1", "b": "1"}, "tester")
    assert made.metadata.uid
    changed = await apply_map(cluster, {"a": "2"}, "tester")
    assert changed.metadata.uid == made.metadata.uid
    assert changed.data == {"a": "2"}


async def test_applying_needs_a_manager(cluster: Cluster) -> None:
    with cluster.refused(422) as refusal:
        await apply_map(cluster, {"a": "1"}, "")
    assert "fieldManager" in refusal.message


async def test_two_managers_who_disagree_conflict(cluster: Cluster) -> None:
    await apply_map(cluster, {"a": "1", "b": "1"}, "one")
    with cluster.refused(409) as refusal:
        await apply_map(cluster, {"a": "2"}, "two")
    assert 'conflict with "one"' in refusal.message
    assert [cause["field"] for cause in refusal.causes] == [".data.a"]
    taken = await apply_map(cluster, {"a": "2"}, "two", force=True)
    assert taken.data == {"a": "2", "b": "1"}


async def test_two_managers_who_agree_share(cluster: Cluster) -> None:
    await apply_map(cluster, {"a": "1"}, "one")
    await apply_map(cluster, {"a": "1", "b": "1"}, "two")
    left = await apply_map(cluster, {}, "one")
    assert left.data == {"a": "1", "b": "1"}


async def test_the_spec_of_a_pod_is_fixed(cluster: Cluster) -> None:
    await cluster.create_pod()
    with cluster.refused(422) as refusal:
        await patch(cluster, {"spec": {"restartPolicy": "Never"}}, MERGE_PATCH)
    assert "pod updates may not change fields other than" in refusal.message


async def test_the_image_of_a_pod_may_change(cluster: Cluster) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    pod = await cluster.core.read_namespaced_pod(pod.metadata.name, cluster.namespace)
    steps = [{"op": "replace", "path": "/spec/containers/0/image", "value": "demo/notebook:3"}]
    changed = await patch(cluster, steps, JSON_PATCH)
    assert changed.spec.containers[0].image == "demo/notebook:3"


async def test_the_name_of_an_object_cannot_be_patched(cluster: Cluster) -> None:
    await cluster.create_pod()
    with cluster.refused(400):
        await patch(cluster, {"metadata": {"name": "other"}}, MERGE_PATCH)


async def test_a_change_of_another_of_the_same_name_is_refused(cluster: Cluster) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    other = "00000000-0000-4000-8000-000000000000"
    with cluster.refused(422) as refusal:
        await patch(cluster, {"metadata": {"uid": other, "labels": {"a": "b"}}}, MERGE_PATCH)
    assert refusal.message == f'Pod "one" is invalid: metadata.uid: Invalid value: "{other}": field is immutable'
    pod.metadata.uid, pod.metadata.resource_version = other, None
    with cluster.refused(409) as refusal:
        await cluster.core.replace_namespaced_pod("one", cluster.namespace, pod)
    assert f"Precondition failed: UID in precondition: {other}" in refusal.message


async def test_the_status_is_written_apart(cluster: Cluster) -> None:
    await cluster.create_pod(nodeSelector={"no": "such-node"})
    changed = await patch(cluster, {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}, MERGE_PATCH)
    assert changed.status.phase == "Pending"
    body = {"spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    changed = await cluster.core.patch_namespaced_pod_status("one", cluster.namespace, body, _content_type=MERGE_PATCH)
    assert changed.status.phase == "Running"
    assert changed.status.pod_ip == "10.0.0.1"
    assert changed.spec.node_name is None


async def test_a_dry_run_of_a_patch_stores_nothing(cluster: Cluster) -> None:
    await cluster.create_pod(labels={"a": "1"})
    shown = await patch(cluster, {"metadata": {"labels": {"a": "2"}}}, MERGE_PATCH, dry_run="All")
    assert shown.metadata.labels == {"a": "2"}
    assert (await cluster.core.read_namespaced_pod("one", cluster.namespace)).metadata.labels == {"a": "1"}


async def test_uid_and_creation_time_cannot_be_changed(cluster: Cluster) -> None:
    made = await cluster.create_pod()
    body = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"a": "b"}}}
    changed = await patch(cluster, body, MERGE_PATCH)
    assert changed.metadata.creation_timestamp == made.metadata.creation_timestamp
    assert changed.metadata.uid == made.metadata.uid


async def test_the_role_of_a_binding_cannot_be_changed(cluster: Cluster) -> None:
    rbac = cluster.api(client.RbacAuthorizationV1Api)
    body = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "other"}}
    with cluster.refused(422):
        await rbac.patch_namespaced_role_binding("hub", cluster.namespace, body, _content_type=MERGE_PATCH)
