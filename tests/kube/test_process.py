"""The kubelet with real processes: stops, exits, crashes, restarts, and what is told of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mig_spawner.testing.kube import Kubelet, NodeSpec
from tests.kube.python_pod import (
    SLEEP,
    child_of,
    is_alive,
    phase,
    python_pod,
    run,
    wait_until_dead,
    wait_until_gone,
)

if TYPE_CHECKING:
    from tests.kube.conftest import Cluster


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
