"""Creating and reading: what the API fills in, and what it does not accept."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster


async def test_a_new_object_gets_uid_revision_and_creation_time(cluster: Cluster) -> None:
    pod = await cluster.create_pod()
    assert pod.metadata.uid
    assert int(pod.metadata.resource_version) > 0
    assert pod.metadata.creation_timestamp is not None
    assert pod.metadata.namespace == cluster.namespace


async def test_two_objects_have_different_uids(cluster: Cluster) -> None:
    one, two = await cluster.create_pod("one"), await cluster.create_pod("two")
    assert one.metadata.uid != two.metadata.uid
    assert int(two.metadata.resource_version) > int(one.metadata.resource_version)


async def test_a_pod_is_completed_with_defaults(cluster: Cluster) -> None:
    pod = await cluster.create_pod()
    assert pod.spec.restart_policy == "Always"
    assert pod.spec.dns_policy == "ClusterFirst"
    assert pod.spec.termination_grace_period_seconds == 30
    assert pod.spec.scheduler_name == "default-scheduler"
    assert pod.spec.service_account_name == "default"
    assert pod.spec.priority == 0
    assert pod.status.phase == "Pending"
    container = pod.spec.containers[0]
    assert container.image_pull_policy == "IfNotPresent"
    assert container.termination_message_path == "/dev/termination-log"
    keys = {toleration.key for toleration in pod.spec.tolerations}
    assert {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} <= keys


async def test_a_pod_gets_the_token_of_its_account(cluster: Cluster) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    [volume], [mount] = pod.spec.volumes, pod.spec.containers[0].volume_mounts
    assert volume.name == mount.name
    assert volume.name.startswith("kube-api-access-")
    assert mount.mount_path == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert [bool(source.service_account_token) for source in volume.projected.sources] == [True, False, False]
    without = await cluster.create_pod("two", automountServiceAccountToken=False, nodeSelector={"no": "such-node"})
    assert without.spec.volumes is None


@pytest.mark.parametrize(
    ("image", "policy"),
    [("a/b:1", "IfNotPresent"), ("a/b:latest", "Always"), ("a/b", "Always"), ("host:5000/b", "Always")],
)
async def test_how_an_image_is_pulled_follows_its_tag(cluster: Cluster, image: str, policy: str) -> None:
    body = cluster.pod()
    body["spec"]["containers"][0]["image"] = image
    pod = await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert pod.spec.containers[0].image_pull_policy == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ],
)
async def test_the_quality_of_service_follows_the_resources(
    cluster: Cluster, resources: dict[str, dict[str, str]], quality: str
) -> None:
    pod = await cluster.create_pod(resources=resources)
    assert pod.status.qos_class == quality


async def test_the_same_name_twice_already_exists(cluster: Cluster) -> None:
    await cluster.create_pod()
    with cluster.refused(409) as refusal:
        await cluster.create_pod()
    assert refusal.reason == "AlreadyExists"
    assert refusal.message == 'pods "one" already exists'


async def test_a_missing_object_is_not_found(cluster: Cluster) -> None:
    with cluster.refused(404) as refusal:
        await cluster.core.read_namespaced_pod("missing", cluster.namespace)
    assert refusal.reason == "NotFound"
    assert refusal.message == 'pods "missing" not found'


async def test_creating_in_a_missing_namespace_is_not_found(cluster: Cluster) -> None:
    with cluster.refused(404) as refusal:
        await cluster.core.create_namespaced_pod("no-such-namespace", cluster.pod())
    assert refusal.message == 'namespaces "no-such-namespace" not found'


async def test_deleting_or_patching_what_is_missing_is_not_found(cluster: Cluster) -> None:
    with cluster.refused(404):
        await cluster.core.delete_namespaced_pod("missing", cluster.namespace)
    with cluster.refused(404):
        await cluster.core.patch_namespaced_pod("missing", cluster.namespace, {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize("name", ["Upper", "under_score", "-leading", "a" * 254], ids=lambda name: name[:12])
async def test_a_bad_name_is_invalid(cluster: Cluster, name: str) -> None:
    with cluster.refused(422) as refusal:
        await cluster.create_pod(name)
    assert refusal.reason == "Invalid"
    assert [cause["field"] for cause in refusal.causes] == ["metadata.name"]


async def test_an_object_needs_a_name(cluster: Cluster) -> None:
    body = cluster.pod()
    del body["metadata"]["name"]
    with cluster.refused(422) as refusal:
        await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert "name or generateName is required" in refusal.message


@pytest.mark.parametrize("labels", [{"bad key": "x"}, {"key": "bad value"}, {"key": "x" * 64}], ids=str)
async def test_a_bad_label_is_invalid(cluster: Cluster, labels: dict[str, str]) -> None:
    with cluster.refused(422) as refusal:
        await cluster.create_pod(labels=labels)
    assert "metadata.labels" in refusal.message


async def test_a_label_must_be_text(cluster: Cluster) -> None:
    body = cluster.pod()
    body["metadata"]["labels"] = {"count": 1}
    with cluster.refused(400):
        await cluster.core.create_namespaced_pod(cluster.namespace, body)


async def test_the_namespace_in_the_body_must_be_the_one_in_the_path(cluster: Cluster) -> None:
    body = cluster.pod()
    body["metadata"]["namespace"] = "default"
    with cluster.refused(400) as refusal:
        await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert "does not match the namespace" in refusal.message


async def test_secret_text_is_stored_encoded(cluster: Cluster) -> None:
    body = {"metadata": {"name": "s"}, "stringData": {"token": "hidden"}}
    secret = await cluster.core.create_namespaced_secret(cluster.namespace, body)
    assert secret.type == "Opaque"
    assert secret.string_data is None
    assert base64.b64decode(secret.data["token"]) == b"hidden"


async def test_a_service_gets_an_address_of_its_own(cluster: Cluster) -> None:
    async def create(name: str) -> Any:
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
        return await cluster.core.create_namespaced_service(cluster.namespace, body)

    one, two = await create("one"), await create("two")
    assert one.spec.type == "ClusterIP"
    assert one.spec.cluster_ip != two.spec.cluster_ip
    assert one.spec.ports[0].protocol == "TCP"
    assert one.spec.ports[0].target_port == 80


async def test_a_claim_starts_pending_and_protected(cluster: Cluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = await cluster.core.create_namespaced_persistent_volume_claim(
        cluster.namespace, {"metadata": {"name": "home"}, "spec": spec}
    )
    assert claim.status.phase == "Pending"
    assert claim.metadata.finalizers == ["kubernetes.io/pvc-protection"]


@pytest.mark.parametrize("storage", ["-1Gi", "0"])
async def test_a_claim_must_ask_for_some_storage(cluster: Cluster, storage: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    with cluster.refused(422) as refusal:
        await cluster.core.create_namespaced_persistent_volume_claim(
            cluster.namespace, {"metadata": {"name": "home"}, "spec": spec}
        )
    assert "must be greater than zero" in refusal.message


async def test_generated_names_differ(cluster: Cluster) -> None:
    async def create() -> Any:
        body = {
            "metadata": {"generateName": "event-"},
            "involvedObject": {"kind": "Pod", "namespace": cluster.namespace},
        }
        return (await cluster.core.create_namespaced_event(cluster.namespace, body)).metadata.name

    one, two = await create(), await create()
    assert one != two
    assert one.startswith("event-")


async def test_events_have_the_times_that_kubespawner_reads(cluster: Cluster) -> None:
    body = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": cluster.namespace, "name": "one"},
        "message": "hello",
        "type": "Normal",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await cluster.core.create_namespaced_event(cluster.namespace, body)
    listed = await cluster.raw(cluster.core.list_namespaced_event(cluster.namespace, _preload_content=False))
    event = listed["items"][0]
    assert event["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert {"firstTimestamp", "eventTime", "type", "message", "involvedObject"} <= event.keys()


async def test_events_are_found_by_what_they_are_about(cluster: Cluster) -> None:
    for name in ("one", "two"):
        body = {
            "metadata": {"generateName": "e-"},
            "involvedObject": {"kind": "Pod", "namespace": cluster.namespace, "name": name},
        }
        await cluster.core.create_namespaced_event(cluster.namespace, body)
    selector = "involvedObject.kind=Pod,involvedObject.name=two"
    found = await cluster.core.list_namespaced_event(cluster.namespace, field_selector=selector)
    assert [event.involved_object.name for event in found.items] == ["two"]


async def test_both_faces_of_an_event_show_the_same(cluster: Cluster) -> None:
    about = {"kind": "Pod", "namespace": cluster.namespace, "name": "one"}
    body = {"metadata": {"name": "e"}, "involvedObject": about, "message": "hello", "reason": "Started"}
    await cluster.core.create_namespaced_event(cluster.namespace, body)
    newer = cluster.api(client.EventsV1Api)
    event = await cluster.raw(newer.read_namespaced_event("e", cluster.namespace, _preload_content=False))
    assert event["apiVersion"] == "events.k8s.io/v1"
    assert event["note"] == "hello"
    assert event["regarding"]["name"] == "one"


async def test_a_dry_run_answers_and_stores_nothing(cluster: Cluster) -> None:
    pod = await cluster.core.create_namespaced_pod(cluster.namespace, cluster.pod(), dry_run="All")
    assert pod.spec.restart_policy == "Always"
    with cluster.refused(404):
        await cluster.core.read_namespaced_pod("one", cluster.namespace)


async def test_a_dry_run_is_validated(cluster: Cluster) -> None:
    with cluster.refused(422):
        await cluster.core.create_namespaced_pod(cluster.namespace, cluster.pod("Bad"), dry_run="All")


async def test_a_dry_run_deletes_nothing(cluster: Cluster) -> None:
    await cluster.create_pod()
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, dry_run="All")
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    assert pod.metadata.deletion_timestamp is None


async def test_a_lease_is_updated_only_by_who_names_its_revision(cluster: Cluster) -> None:
    leases = cluster.api(client.CoordinationV1Api)
    made = await leases.create_namespaced_lease(
        cluster.namespace, {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"}}
    )
    body = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "b"}}
    with cluster.refused(422):
        await leases.replace_namespaced_lease("leader", cluster.namespace, body)
    made.spec.holder_identity = "b"
    taken = await leases.replace_namespaced_lease("leader", cluster.namespace, made)
    assert taken.spec.holder_identity == "b"
