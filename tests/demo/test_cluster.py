"""The demo's Kubernetes, embedded and real: hub and allocator have the rights of their charts, and nobody else has any."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from mig_spawner.demo.cluster import NAMESPACE, Cluster
from mig_spawner.demo.fleet import Node
from mig_spawner.demo.workspace import Workspace
from tests.controlplane.fixture import assets_or_skip


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.controlplane)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workspace]:
    programs = assets_or_skip() if request.param == "real" else None
    workspace = Workspace(tmp_path, tmp_path / "logs")
    async with Cluster(workspace, [Node.parse("node-a", "a100-80gb:1")], programs=programs) as cluster:
        assert await cluster.pods() == {}
        yield workspace


async def status(kubeconfig: Path, call: str, *arguments: Any) -> int:
    async with await config.new_client_from_config(str(kubeconfig)) as api:
        core: Any = client.CoreV1Api(api)
        try:
            await getattr(core, call)(*arguments)
        except client.ApiException as error:
            return int(error.status or 0)
    return 200


POD = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "notebook", "image": "demo:1"}]}}
HUB_MAY: list[tuple[Any, ...]] = [
    ("list_namespaced_pod", NAMESPACE),
    ("list_namespaced_event", NAMESPACE),
    ("list_namespaced_secret", NAMESPACE),
    ("create_namespaced_pod", NAMESPACE, POD),
    ("delete_namespaced_pod", "one", NAMESPACE),
]
HUB_MAY_NOT: list[tuple[Any, ...]] = [
    ("list_node",),
    ("list_namespaced_pod", "kube-system"),
    ("patch_namespaced_pod", "one", NAMESPACE, {}),
    ("create_namespaced_config_map", NAMESPACE, {"metadata": {"name": "one"}}),
]


async def test_who_may_what(cluster: Workspace, tmp_path: Path) -> None:
    hub, allocator = cluster.kubeconfig("hub"), cluster.kubeconfig("mig-allocator")
    assert {call: await status(hub, call, *rest) for call, *rest in HUB_MAY} == {call: 200 for call, *_ in HUB_MAY}
    assert {await status(hub, call, *rest) for call, *rest in HUB_MAY_NOT} == {403}
    assert await status(allocator, "list_namespaced_pod", NAMESPACE) == 200
    assert await status(allocator, "list_namespaced_event", NAMESPACE) == 403
    assert await status(allocator, "delete_namespaced_pod", "one", NAMESPACE) == 403
    # Somebody who guesses, or has the token of another demo.
    text = hub.read_text()
    token = text.split("token: ")[1].split()[0]
    stranger = tmp_path / "stranger.yaml"
    stranger.write_text(text.replace(token, "guessed"))
    assert await status(stranger, "list_namespaced_pod", NAMESPACE) == 401
