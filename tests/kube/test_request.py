"""The table of requests, some of which no client library would send: both servers give the same answer, and none crashes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

ANSWERS: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "answers.yaml").read_text())
ROOTS = {
    "core": "/api/v1/namespaces/{namespace}",
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "rbac": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}",
}


def path_of(asked: str, namespace: str) -> str:
    root, rest = next(
        ((path, asked.removeprefix(name)) for name, path in ROOTS.items() if asked.startswith(name)), ("", asked)
    )
    return (root + rest).replace("{namespace}", namespace)


def body_of(case: dict[str, Any]) -> Any:
    if "pod" not in case:
        return case.get("body")
    metadata = case["pod"] if isinstance(case["pod"], dict) else {"name": case["pod"]}
    container = {"name": "notebook", "image": "a:1", **case.get("container", {})}
    # No node has this label, so that no scheduler touches the pod.
    return {
        "metadata": metadata,
        "spec": {"containers": [container], "nodeSelector": {"no": "node"}, **case.get("spec", {})},
    }


@pytest.mark.parametrize("topic", ANSWERS)
async def test_both_servers_give_the_answers_of_the_table(cluster: Cluster, topic: str) -> None:
    for case in ANSWERS[topic]:
        method, path = case["ask"].split(" ", 1)
        kind = f"{'text' if case.get('as') == 'plain' else 'application'}/{case.get('as', 'json')}"
        code, answer = await cluster.ask(method, path_of(path, cluster.namespace), body_of(case), content_type=kind)
        assert code == case["answer"], (case, answer)
        if code >= 400:
            assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", code), case
            assert case.get("says", "").replace("{namespace}", cluster.namespace) in answer["message"], (case, answer)
            assert answer["message"], case


@pytest.mark.parametrize("path", ["/apis/example.com/v1", "/apis/example.com/v1/namespaces/a/widgets", "/elsewhere"])
async def test_a_path_that_nobody_serves_is_not_found(cluster: Cluster, path: str) -> None:
    assert await cluster.ask("GET", path) == (404, "404 page not found")


async def test_what_is_not_json_is_a_bad_request(cluster: Cluster) -> None:
    code, answer = await cluster.ask("POST", path_of("pods", cluster.namespace), b"{")
    assert (code, answer["reason"]) == (400, "BadRequest")
