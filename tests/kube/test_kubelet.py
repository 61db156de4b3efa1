"""The kubelet with real processes: environment, volumes, stops, crashes, restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client

from mig_spawner.testing.kube import Kubelet, NodeSpec
from mig_spawner.testing.kube.kubelet.addresses import AddressPool

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster

MIG = "nvidia.com/mig-1g.10gb"
SLEEP = "import time; time.sleep(600)"
TELL = "import json, os; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd()}))"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def python_pod(cluster: Cluster, name: str, code: str, **spec: Any) -> dict[str, Any]:
    """A pod that runs a line of Python, once unless `restartPolicy` says otherwise; keys of `container` go there."""
    container = {"command": [sys.executable, "-c"], "args": [code], **spec.pop("container", {})}
    body = cluster.pod(name, **{"restartPolicy": "Never", **spec})
    body["spec"]["containers"][0] |= container
    return body


async def run(cluster: Cluster, name: str, code: str = SLEEP, *, until: str = "Running", **spec: Any) -> Any:
    """Creates a pod and returns it when it has reached a phase."""
    await cluster.core.create_namespaced_pod(cluster.namespace, python_pod(cluster, name, code, **spec))
    return await phase(cluster, name, until)


async def phase(cluster: Cluster, name: str, wanted: str) -> Any:
    async def reached() -> Any:
        pod = await cluster.core.read_namespaced_pod(name, cluster.namespace)
        return pod if pod.status.phase == wanted else None

    return await cluster.wait_for(reached, f"phase {wanted} of {name}")


async def wait_until_gone(cluster: Cluster, name: str) -> None:
    async def is_gone() -> bool:
        pods = await cluster.core.list_namespaced_pod(cluster.namespace, field_selector=f"metadata.name={name}")
        return not pods.items

    await cluster.wait_for(is_gone, f"the end of pod {name}")


async def told(cluster: Cluster, kubelet: Kubelet, name: str = "one", code: str = TELL, **spec: Any) -> Any:
    """What a pod printed, as JSON."""
    await run(cluster, name, code, until="Succeeded", **spec)
    return json.loads(kubelet.log_path(cluster.namespace, name).read_text())


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def wait_until_dead(cluster: Cluster, *pids: int) -> None:
    async def are_dead() -> bool:
        return not any(map(is_alive, pids))

    await cluster.wait_for(are_dead, f"the end of the processes {pids}")


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


async def test_a_stop_lets_the_process_finish(cluster: Cluster, kubelet: Kubelet) -> None:
    code = (
        "import signal, sys, time\n"
        "def stop(*_):\n    print('bye', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    await run(cluster, "one", code)
    log = kubelet.log_path(cluster.namespace, "one")

    async def is_ready() -> bool:
        return log.read_text() == "ready\n"

    await cluster.wait_for(is_ready)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=20)
    await wait_until_gone(cluster, "one")
    assert log.read_text() == "ready\nbye\n"


async def test_who_does_not_hear_is_killed_when_the_grace_is_over(cluster: Cluster, kubelet: Kubelet) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    await run(cluster, "one", code)
    log = kubelet.log_path(cluster.namespace, "one")

    async def is_deaf() -> bool:
        return log.read_text() == "deaf\n"

    await cluster.wait_for(is_deaf)
    pid = kubelet.running()[f"{cluster.namespace}/one"]
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=1)
    await wait_until_gone(cluster, "one")
    assert not is_alive(pid)


async def child_of(cluster: Cluster, kubelet: Kubelet, name: str = "one", **spec: Any) -> int:
    """Runs a pod whose child has a session of its own, as Jupyter's kernels have, and ignores SIGTERM."""
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    code = (
        f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True);"
        " print(p.pid, flush=True); time.sleep(600)"
    )
    await run(cluster, name, code, **spec)
    log = kubelet.log_path(cluster.namespace, name)

    async def pid() -> int:
        return int(log.read_text().strip() or 0)

    return await cluster.wait_for(pid, "the child")


async def test_a_stop_ends_the_children_as_well(cluster: Cluster, kubelet: Kubelet) -> None:
    child = await child_of(cluster, kubelet)
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=1)
    await wait_until_gone(cluster, "one")
    await wait_until_dead(cluster, child)


async def test_a_deletion_without_grace_kills_at_once(cluster: Cluster, kubelet: Kubelet) -> None:
    child = await child_of(cluster, kubelet)
    pid = kubelet.running()[f"{cluster.namespace}/one"]
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=0)
    await wait_until_dead(cluster, pid, child)


@pytest.mark.parametrize(("code", "outcome"), [(0, "Succeeded"), (3, "Failed")])
async def test_an_exit_is_told_with_its_code(cluster: Cluster, kubelet: Kubelet, code: int, outcome: str) -> None:
    pod = await run(cluster, "one", f"raise SystemExit({code})", until=outcome)
    ended = pod.status.container_statuses[0].state.terminated
    assert ended.exit_code == code
    assert ended.reason == ("Completed" if code == 0 else "Error")
    assert ended.started_at is not None
    assert ended.finished_at is not None


async def test_a_killed_process_is_told_with_its_signal(cluster: Cluster, kubelet: Kubelet) -> None:
    await run(cluster, "one")
    await kubelet.kill_pod(cluster.namespace, "one")
    pod = await phase(cluster, "one", "Failed")
    assert pod.status.container_statuses[0].state.terminated.exit_code == 128 + signal.SIGKILL
    with pytest.raises(LookupError):
        await kubelet.kill_pod(cluster.namespace, "one")


async def test_a_program_that_is_not_there_fails_for_good(cluster: Cluster, kubelet: Kubelet) -> None:
    pod = await run(
        cluster, "one", until="Failed", restartPolicy="Always", container={"command": ["no-such-program"], "args": []}
    )
    ended = pod.status.container_statuses[0].state.terminated
    assert ended.exit_code == 128
    assert "no-such-program" in ended.message


async def waiting_reason(cluster: Cluster, name: str = "one") -> str:
    pod = await cluster.core.read_namespaced_pod(name, cluster.namespace)
    statuses = pod.status.container_statuses or []
    return next((status.state.waiting.reason for status in statuses if status.state.waiting), "")


async def test_a_missing_secret_holds_the_start_until_it_is_there(cluster: Cluster, kubelet: Kubelet) -> None:
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "late", "key": "token"}}}]
    await cluster.core.create_namespaced_pod(
        cluster.namespace, python_pod(cluster, "one", SLEEP, container={"env": env})
    )

    async def is_waiting() -> bool:
        return await waiting_reason(cluster) == "CreateContainerConfigError"

    await cluster.wait_for(is_waiting)
    await cluster.core.create_namespaced_secret(
        cluster.namespace, {"metadata": {"name": "late"}, "stringData": {"token": "x"}}
    )
    await phase(cluster, "one", "Running")


async def test_who_fails_again_and_again_is_held_back(cluster: Cluster, kubelet: Kubelet) -> None:
    await cluster.core.create_namespaced_pod(
        cluster.namespace, python_pod(cluster, "one", "raise SystemExit(1)", restartPolicy="OnFailure")
    )

    async def is_held_back() -> bool:
        return await waiting_reason(cluster) == "CrashLoopBackOff"

    await cluster.wait_for(is_held_back)
    pod = await cluster.core.read_namespaced_pod("one", cluster.namespace)
    status = pod.status.container_statuses[0]
    assert pod.status.phase == "Running"
    assert status.restart_count >= 2
    assert status.last_state.terminated.exit_code == 1
    events = await cluster.core.list_namespaced_event(cluster.namespace)
    assert "BackOff" in {event.reason for event in events.items}


async def test_the_steps_of_a_life_are_told_as_events(cluster: Cluster, kubelet: Kubelet) -> None:
    await run(cluster, "one")
    await cluster.core.delete_namespaced_pod("one", cluster.namespace, grace_period_seconds=1)
    await wait_until_gone(cluster, "one")

    async def are_told() -> bool:
        events = await cluster.core.list_namespaced_event(cluster.namespace)
        return {"Scheduled", "Pulled", "Started", "Killing"} <= {event.reason for event in events.items}

    await cluster.wait_for(are_told, "the events")


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


async def test_the_more_important_pod_is_placed_first(cluster: Cluster, kubelet: Kubelet) -> None:
    scheduling, urgent = cluster.api(client.SchedulingV1Api), f"urgent-{cluster.namespace}"
    await scheduling.create_priority_class({"metadata": {"name": urgent}, "value": 1000, "preemptionPolicy": "Never"})
    try:
        mig: dict[str, Any] = {"resources": {"limits": {MIG: "2"}}}
        await run(cluster, "first", **mig)
        await cluster.core.create_namespaced_pod(cluster.namespace, python_pod(cluster, "early", SLEEP, **mig))
        await cluster.core.create_namespaced_pod(
            cluster.namespace, python_pod(cluster, "important", SLEEP, priorityClassName=urgent, **mig)
        )
        await cluster.core.delete_namespaced_pod("first", cluster.namespace, grace_period_seconds=0)
        await phase(cluster, "important", "Running")
        early = await cluster.core.read_namespaced_pod("early", cluster.namespace)
        assert early.status.phase == "Pending"
    finally:
        await scheduling.delete_priority_class(urgent)


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


async def test_what_ran_under_an_earlier_kubelet_has_failed(cluster: Cluster, tmp_path: Path) -> None:
    node = NodeSpec(f"again-{cluster.suffix}")
    async with Kubelet(cluster.kubeconfig, [node], state_dir=tmp_path, schedule=False) as kubelet:
        await run(cluster, "one", nodeName=node.name)
        child = await child_of(cluster, kubelet, "two", nodeName=node.name)
        pid = kubelet.running()[f"{cluster.namespace}/one"]
    await wait_until_dead(cluster, pid, child)
    async with Kubelet(cluster.kubeconfig, [node], state_dir=tmp_path, schedule=False):
        pod = await phase(cluster, "one", "Failed")
        assert pod.status.container_statuses[0].state.terminated.exit_code == 137


PROGRAM = """
import asyncio, sys
from pathlib import Path
from mig_spawner.testing.kube import Kubelet, NodeSpec

async def main():
    async with Kubelet(Path(sys.argv[1]), [NodeSpec(sys.argv[2])], state_dir=Path(sys.argv[3]), schedule=False) as kubelet:
        while not kubelet.running():
            await asyncio.sleep(0.02)
        print(*kubelet.running().values(), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_nothing_survives_a_kubelet_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    name = f"killed-{cluster.suffix}"
    command = [sys.executable, "-c", PROGRAM, str(cluster.kubeconfig), name, str(tmp_path)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        await run(cluster, "one", nodeName=name)
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert is_alive(pid)
    finally:
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()
    await wait_until_dead(cluster, pid)
