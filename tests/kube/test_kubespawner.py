"""An unmodified KubeSpawner, with the rights of a hub and no more, on nodes that run its pods for real."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client, config
from kubespawner import KubeSpawner
from kubespawner.clients import load_config

from mig_spawner.testing.kube import Kubelet

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

MIG = "nvidia.com/mig-1g.10gb"
SLEEP = "import time; time.sleep(600)"
UNTIL_TOLD = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.02)\nraise SystemExit({})"
"""A server that runs until a file is there, and then ends with a code."""

MakeSpawner = Callable[..., KubeSpawner]


@pytest.fixture
async def make_spawner(
    cluster: Cluster, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeSpawner]:
    """Makes spawners whose pods run a line of Python."""
    before = client.Configuration.get_default_copy()
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.hub_kubeconfig))
    monkeypatch.setattr(KubeSpawner, "reflectors", {})
    load_config.cache_clear()

    def make(code: str = SLEEP, **traits: Any) -> KubeSpawner:
        traits.setdefault("pod_name_template", "server")
        return KubeSpawner(
            _mock=True,
            namespace=cluster.namespace,
            image="demo/notebook:1",
            cmd=[sys.executable, "-c", code],
            **traits,
        )

    yield make
    for reflector in KubeSpawner.reflectors.values():
        await reflector.stop()
    load_config.cache_clear()
    client.Configuration.set_default(before)


async def exit_code(cluster: Cluster, spawner: KubeSpawner) -> int:
    code: int | None = None

    async def answer() -> bool:
        nonlocal code
        code = await spawner.poll()
        return code is not None

    await cluster.wait_for(answer, "the exit")
    assert code is not None
    return code


async def test_a_server_starts_runs_and_stops(cluster: Cluster, kubelet: Kubelet, make_spawner: MakeSpawner) -> None:
    spawner = make_spawner()
    url = await spawner.start()
    pod = await cluster.core.read_namespaced_pod("server", cluster.namespace)
    assert url == f"http://{pod.status.pod_ip}:8888"
    assert await spawner.poll() is None
    assert list(kubelet.running()) == [f"{cluster.namespace}/server"]
    await spawner.stop()
    assert await spawner.poll() == 1
    assert not kubelet.running()
    with cluster.refused(404):
        await cluster.core.read_namespaced_pod("server", cluster.namespace)


@pytest.mark.parametrize("code", [0, 9])
async def test_the_exit_code_is_told(cluster: Cluster, make_spawner: MakeSpawner, tmp_path: Path, code: int) -> None:
    end = tmp_path / "end"
    spawner = make_spawner(UNTIL_TOLD.format(str(end), code), extra_pod_config={"restartPolicy": "Never"})
    await spawner.start()
    end.touch()
    assert await exit_code(cluster, spawner) == code


async def test_a_clean_exit_ends_the_server_though_failures_restart_it(
    cluster: Cluster, make_spawner: MakeSpawner, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    spawner = make_spawner(UNTIL_TOLD.format(str(end), 0))
    await spawner.start()
    end.touch()
    assert await exit_code(cluster, spawner) == 0


async def test_a_killed_server_ends_with_137(cluster: Cluster, kubelet: Kubelet, make_spawner: MakeSpawner) -> None:
    spawner = make_spawner(extra_pod_config={"restartPolicy": "Never"})
    await spawner.start()
    await kubelet.kill_pod(cluster.namespace, "server")
    assert await exit_code(cluster, spawner) == 137


async def test_a_failed_server_is_restarted_and_still_counts_as_running(
    cluster: Cluster, kubelet: Kubelet, make_spawner: MakeSpawner
) -> None:
    spawner = make_spawner()
    await spawner.start()
    await kubelet.kill_pod(cluster.namespace, "server")

    async def is_restarted() -> bool:
        pod = await cluster.core.read_namespaced_pod("server", cluster.namespace)
        status = pod.status.container_statuses[0]
        return bool(status.restart_count == 1 and status.state.running)

    await cluster.wait_for(is_restarted, "the restart")
    assert await spawner.poll() is None
    await spawner.stop()


async def test_the_home_outlives_the_server(cluster: Cluster, make_spawner: MakeSpawner, tmp_path: Path) -> None:
    traits = {
        "storage_pvc_ensure": True,
        "storage_capacity": "1Gi",
        "pvc_name_template": "home",
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
        "volume_mounts": [{"name": "home", "mountPath": "/home/jovyan"}],
        "extra_pod_config": {"restartPolicy": "Never"},
    }
    code = "import pathlib; note = pathlib.Path.home() / 'note'; seen = note.exists(); note.touch()\n" + UNTIL_TOLD
    for expected in (3, 7):
        end = tmp_path / f"end-{expected}"
        spawner = make_spawner(code.format(str(end), "7 if seen else 3"), **traits)
        await spawner.start()
        end.touch()
        assert await exit_code(cluster, spawner) == expected


async def test_who_waits_is_told_why_and_starts_when_a_device_is_free(
    cluster: Cluster, make_spawner: MakeSpawner
) -> None:
    limits = {MIG: "2"}
    first = make_spawner(extra_resource_limits=limits)
    await first.start()
    second = make_spawner(extra_resource_limits=limits, pod_name_template="second")
    starting = second.start()

    async def is_told() -> bool:
        return any(event["reason"] == "FailedScheduling" for event in second.events)

    await cluster.wait_for(is_told, "FailedScheduling")
    message = next(event["message"] for event in second.events if event["reason"] == "FailedScheduling")
    assert f"2 Insufficient {MIG}" in message
    assert await second.poll() is None
    await first.stop()
    await starting
    pod = await cluster.core.read_namespaced_pod("second", cluster.namespace)
    assert pod.spec.node_name.startswith("gpu-b-")
    await second.stop()


async def test_progress_tells_the_steps_of_a_start(make_spawner: MakeSpawner) -> None:
    spawner = make_spawner()
    starting = spawner.start()
    steps = [event["message"] async for event in spawner.progress()]
    await starting
    assert any("Successfully assigned" in step for step in steps)
    assert any("Started container notebook" in step for step in steps)
    await spawner.stop()


async def test_a_hub_without_the_right_to_delete_is_refused(cluster: Cluster, make_spawner: MakeSpawner) -> None:
    spawner = make_spawner()
    await spawner.start()
    rules = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "watch", "list", "create"]}]
    rbac = cluster.api(client.RbacAuthorizationV1Api)
    await rbac.patch_namespaced_role("hub", cluster.namespace, [{"op": "replace", "path": "/rules", "value": rules}])

    async def may_not_delete() -> bool:
        asked = {"spec": {"resourceAttributes": {"namespace": cluster.namespace, "verb": "delete", "resource": "pods"}}}
        review = await cluster.api(client.AuthorizationV1Api, as_hub=True).create_self_subject_access_review(asked)
        return not review.status.allowed

    await cluster.wait_for(may_not_delete)
    with cluster.refused(403):
        await spawner.stop()


async def test_a_pod_in_the_way_is_replaced(cluster: Cluster, make_spawner: MakeSpawner) -> None:
    spawner = make_spawner()
    old = await cluster.core.create_namespaced_pod(
        cluster.namespace, cluster.pod("server", labels={"component": "singleuser-server"}, nodeSelector={"no": "node"})
    )
    await spawner.start()
    pod = await cluster.core.read_namespaced_pod("server", cluster.namespace)
    assert pod.metadata.uid != old.metadata.uid
    await spawner.stop()
