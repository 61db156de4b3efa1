"""Pods whose process is a line of Python, for the tests of the kubelet."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mig_spawner.testing.kube import Kubelet
    from tests.kube.conftest import Cluster

SLEEP = "import time; time.sleep(600)"
TELL = "import json, os; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd()}))"


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
