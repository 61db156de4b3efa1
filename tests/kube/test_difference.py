"""The table of differences is true, and each has a test: here are those that belong nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client

from tests.kube.difference import DIFFERENCES, Difference

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

HERE = Path(__file__).parent


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.test)
def test_a_row_names_a_test_of_both_servers_and_a_reason(difference: Difference) -> None:
    file, _, name = difference.test.partition("::")
    functions = {
        found.name: {argument.arg for argument in found.args.args}
        for found in ast.parse((HERE / file).read_text()).body
        if isinstance(found, ast.AsyncFunctionDef | ast.FunctionDef)
    }
    assert "cluster" in functions[name]
    assert difference.reason.endswith(".")


def test_no_test_is_named_twice() -> None:
    names = [difference.test for difference in DIFFERENCES]
    assert sorted(set(names)) == sorted(names)


async def test_an_unknown_field_is_refused(cluster: Cluster) -> None:
    with cluster.refused(400) as refusal:
        await cluster.create_pod(nodeSelectr={})
    assert 'strict decoding error: unknown field "spec.nodeSelectr"' in refusal.message
    code, answer = await cluster.ask(
        "POST", f"/api/v1/namespaces/{cluster.namespace}/pods", {**cluster.pod("two"), "spek": {}}
    )
    assert (code, "unknown field" in answer["message"]) == (400, True)


async def test_what_cannot_be_decoded_is_told_in_words_of_go(cluster: Cluster) -> None:
    body = cluster.pod()
    body["metadata"]["labels"] = {"count": 1}
    with cluster.refused(400) as refusal:
        await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string" in (
        refusal.message
    )


async def test_a_probe_is_completed(cluster: Cluster) -> None:
    body = cluster.pod(nodeSelector={"no": "such-node"})
    body["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"path": "/", "port": 80}}
    pod = await cluster.core.create_namespaced_pod(cluster.namespace, body)
    assert pod.spec.containers[0].liveness_probe.period_seconds == 10


async def test_a_new_node_is_tainted_until_it_is_ready(cluster: Cluster) -> None:
    node = await cluster.core.create_node({"metadata": {"name": f"new-{cluster.suffix}"}})
    assert [taint.key for taint in node.spec.taints or []] == ["node.kubernetes.io/not-ready"]


async def test_a_volume_is_protected(cluster: Cluster) -> None:
    name = f"volume-{cluster.suffix}"
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"}}
    # Of a class of its own, or a claim of another test would be bound to it.
    spec["storageClassName"] = name
    volume = await cluster.core.create_persistent_volume({"metadata": {"name": name}, "spec": spec})
    await cluster.core.delete_persistent_volume(name)
    assert volume.metadata.finalizers == ["kubernetes.io/pv-protection"]


async def test_a_pod_counts_its_generations(cluster: Cluster) -> None:
    pod = await cluster.create_pod(nodeSelector={"no": "such-node"})
    steps = [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 60}]
    changed = await cluster.core.patch_namespaced_pod("one", cluster.namespace, steps)
    assert (pod.metadata.generation, changed.metadata.generation) == (1, 2)


async def test_applying_over_what_somebody_created_conflicts(cluster: Cluster) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1"}}
    await cluster.core.create_namespaced_config_map(cluster.namespace, body, field_manager="creator")
    with cluster.refused(409) as refusal:
        await cluster.core.patch_namespaced_config_map(
            "settings",
            cluster.namespace,
            {**body, "data": {"a": "2"}},
            _content_type="application/apply-patch+yaml",
            field_manager="tester",
        )
    assert 'conflict with "creator" using v1: .data.a' in refusal.message


async def test_a_pod_that_waits_has_no_log_yet(cluster: Cluster) -> None:
    await cluster.create_pod(nodeSelector={"no": "such-node"})
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/one/log"
    assert await cluster.ask("GET", path) == (204, "")


async def test_a_table_has_the_wide_columns(cluster: Cluster) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    _, table = await cluster.ask("GET", f"/api/v1/namespaces/{cluster.namespace}/pods", accept=accept)
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert columns[5:] == ["IP", "Node", "Nominated Node", "Readiness Gates"]


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (client.AppsV1Api, "list_namespaced_deployment"),
        (client.BatchV1Api, "list_namespaced_job"),
        (client.PolicyV1Api, "list_namespaced_pod_disruption_budget"),
        (client.NetworkingV1Api, "list_namespaced_network_policy"),
    ],
    ids=["deployment", "job", "disruption-budget", "network-policy"],
)
async def test_other_kinds_are_served(cluster: Cluster, kind: Any, ask: str) -> None:
    assert (await getattr(cluster.api(kind), ask)(cluster.namespace)).items == []
