"""The kubelet with real processes: environment, addresses, volumes, places."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mig_spawner.testing.kube import Kubelet, NodeSpec
from mig_spawner.testing.kube.kubelet.addresses import AddressPool
from tests.kube.python_pod import (
    SLEEP,
    TELL,
    python_pod,
    run,
    told,
    wait_until_gone,
)

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

MIG = "nvidia.com/mig-1g.10gb"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def test_a_node_tells_what_it_has(cluster: Cluster, kubelet: Kubelet) -> None:
    found = await cluster.core.list_node(label_selector="pool=b")
    node = next(node for node in found.items if node.metadata.name.endswith(cluster.suffix))
    assert node.status.allocatable[MIG] == "2"
    assert node.status.capacity["cpu"] == "4"
    assert node.metadata.labels["kubernetes.io/hostname"] == node.metadata.name
    assert {found.type: found.status for found in node.status.conditions}["Ready"] == "True"
    assert all(vars(node.status.node_info)[f"_{key}"] for key in ("boot_id", "kubelet_version", "os_image"))


async def test_the_environment_is_that_of_an_image(cluster: Cluster, kubelet: Kubelet) -> None:
    env = (await told(cluster, kubelet))["env"]
    assert {"PATH", "HOME", "LANG", "USER", "HOSTNAME"} <= env.keys()
    assert env["HOSTNAME"] == "one"
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert not {"PYTEST_CURRENT_TEST", "KUBECONFIG"} & env.keys()


async def test_a_pod_learns_what_only_its_node_knows(cluster: Cluster, kubelet: Kubelet) -> None:
    names = {"secret": "keys", "map": "settings"}
    await cluster.core.create_namespaced_secret(
        cluster.namespace, {"metadata": {"name": names["secret"]}, "stringData": {"token": "hidden"}}
    )
    await cluster.core.create_namespaced_config_map(
        cluster.namespace, {"metadata": {"name": names["map"]}, "data": {"color": "blue"}}
    )
    env = [
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "none", "optional": True}}},
        {"name": "GREETING", "value": "$(COLOR) $$(COLOR)"},
        {"name": "JUPYTERHUB_SERVICE_URL", "value": "http://0.0.0.0:8888/user/a/"},
    ]
    given = (await told(cluster, kubelet, container={"env": env}))["env"]
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    assert given["ADDRESS"] == pod.status.pod_ip
    assert given["NODE"] == pod.spec.node_name
    assert (given["TOKEN"], given["COLOR"], given["GREETING"]) == ("hidden", "blue", "blue $(COLOR)")
    assert "NONE" not in given
    assert given["JUPYTERHUB_SERVICE_URL"] == f"http://{pod.status.pod_ip}:8888/user/a/"


async def test_arguments_are_expanded(cluster: Cluster, kubelet: Kubelet) -> None:
    container = {
        "env": [{"name": "WORD", "value": "hello"}],
        "args": ["import sys; print(sys.argv[1:])", "$(WORD)", "$$x"],
    }
    await run(cluster, "one", until="Succeeded", container=container)
    assert kubelet.log_path(cluster.namespace, "one").read_text().strip() == "['hello', '$x']"


async def test_each_pod_has_an_address_of_its_own(cluster: Cluster, kubelet: Kubelet) -> None:
    if not AddressPool().has_own_addresses:
        pytest.skip("this machine has only 127.0.0.1")
    code = (
        "import os, socket; s = socket.create_server((os.environ['ADDRESS'], 8888));"
        " print('listening', flush=True); s.accept()"
    )
    env = [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    pods = [await run(cluster, name, code, container={"env": env}) for name in ("one", "two")]
    assert len({pod.status.pod_ip for pod in pods}) == 2

    async def are_listening() -> bool:
        logs = [kubelet.log_path(cluster.namespace, name) for name in ("one", "two")]
        return all(log.read_text() == "listening\n" for log in logs)

    await cluster.wait_for(are_listening, "both servers on one port")


def test_an_address_is_given_to_one_pod_at_a_time() -> None:
    pool = AddressPool()
    if not pool.has_own_addresses:
        pytest.skip("this machine has only 127.0.0.1")
    given = {pool.take() for _ in range(253)}
    assert len(given) == 253
    with pytest.raises(RuntimeError, match="all addresses"):
        pool.take()
    pool.give_back(some := min(given))
    assert pool.take() == some


def test_where_there_is_one_address_all_pods_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mig_spawner.testing.kube.kubelet.addresses._can_bind", lambda _: False)
    pool = AddressPool()
    assert [pool.take(), pool.take()] == ["127.0.0.1", "127.0.0.1"]


async def test_a_claim_is_home_and_outlives_the_pod(cluster: Cluster, kubelet: Kubelet) -> None:
    await cluster.core.create_namespaced_persistent_volume_claim(
        cluster.namespace, {"metadata": {"name": "home"}, "spec": CLAIM}
    )
    spec = {
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
        "container": {
            "volumeMounts": [{"name": "home", "mountPath": "/home/jovyan"}],
            "workingDir": "/home/jovyan/work",
            "env": [{"name": "HOME", "value": "/home/jovyan"}],
        },
    }
    answer = await told(cluster, kubelet, "one", TELL, **spec)
    assert answer["cwd"] == answer["env"]["HOME"] + "/work"
    home = Path(answer["env"]["HOME"])
    (home / "note").write_text("kept")
    await cluster.core.delete_namespaced_pod("one", cluster.namespace)
    await wait_until_gone(cluster, "one")
    again = await told(
        cluster, kubelet, "two", "import json, pathlib; print(json.dumps(pathlib.Path('../note').read_text()))", **spec
    )
    assert again == "kept"
    claim = await cluster.core.read_namespaced_persistent_volume_claim("home", cluster.namespace)
    volume = await cluster.core.read_persistent_volume(claim.spec.volume_name)
    assert (claim.status.phase, volume.status.phase) == ("Bound", "Bound")
    assert claim.status.capacity == {"storage": "1Gi"}


async def test_a_deleted_claim_takes_its_folder_along(cluster: Cluster, kubelet: Kubelet) -> None:
    await cluster.core.create_namespaced_persistent_volume_claim(
        cluster.namespace, {"metadata": {"name": "home"}, "spec": CLAIM}
    )

    async def volume() -> str | None:
        claim = await cluster.core.read_namespaced_persistent_volume_claim("home", cluster.namespace)
        return claim.spec.volume_name if claim.status.phase == "Bound" else None

    name = await cluster.wait_for(volume, "the volume")
    folder = Path((await cluster.core.read_persistent_volume(name)).spec.host_path.path)
    assert folder.is_dir()
    await cluster.core.delete_namespaced_persistent_volume_claim("home", cluster.namespace)

    async def is_gone() -> bool:
        volumes = await cluster.core.list_persistent_volume()
        return not folder.exists() and name not in {volume.metadata.name for volume in volumes.items}

    await cluster.wait_for(is_gone, "the end of volume and folder")


async def test_a_pod_goes_where_its_selector_points(cluster: Cluster, kubelet: Kubelet) -> None:
    suffix = cluster.suffix
    for letter in ("b", "a"):
        name = f"gpu-{letter}-{suffix}"
        pod = await run(cluster, f"on-{letter}", nodeSelector={"kubernetes.io/hostname": name})
        assert pod.spec.node_name == name


async def test_a_pod_that_fits_nowhere_is_told_so_in_its_conditions(cluster: Cluster, kubelet: Kubelet) -> None:
    await cluster.core.create_namespaced_pod(
        cluster.namespace, python_pod(cluster, "one", SLEEP, resources={"limits": {MIG: "8"}})
    )

    async def condition() -> Any:
        pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
        return next(iter(pod.status.conditions or []), None)

    found = await cluster.wait_for(condition, "the condition")
    assert (found.type, found.status, found.reason) == ("PodScheduled", "False", "Unschedulable")
    assert f"Insufficient {MIG}" in found.message


async def test_marks_of_silence_are_lifted_and_marks_of_an_admin_are_not(cluster: Cluster, tmp_path: Path) -> None:
    name = f"marked-{cluster.suffix}"
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "mine", "value": "yes", "effect": "NoSchedule"},
    ]
    await cluster.core.create_node({"metadata": {"name": name}, "spec": {"taints": taints}})
    async with Kubelet(cluster.kubeconfig, [NodeSpec(name)], state_dir=tmp_path, schedule=False):
        node = await cluster.core.read_node(name)
        assert [taint.key for taint in node.spec.taints] == ["mine"]


async def test_a_device_plugin_can_add_to_the_environment(cluster: Cluster, tmp_path: Path) -> None:
    name = f"extra-{cluster.suffix}"
    async with Kubelet(
        cluster.kubeconfig,
        [NodeSpec(name)],
        state_dir=tmp_path,
        schedule=False,
        path_prefix=[tmp_path / "bin"],
        extra_env=lambda pod: {"NVIDIA_VISIBLE_DEVICES": "MIG-1", "OTHER": pod["metadata"]["name"]},
    ) as kubelet:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "MIG-2"}]
        given = (await told(cluster, kubelet, nodeName=name, container={"env": env}))["env"]
    assert (given["NVIDIA_VISIBLE_DEVICES"], given["OTHER"]) == ("MIG-2", "one")
    assert given["PATH"].startswith(f"{tmp_path / 'bin'}{os.pathsep}")
