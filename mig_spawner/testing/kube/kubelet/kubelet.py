"""The kubelet: plays nodes, and runs their pods as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mig_spawner.testing.kube.kubelet.addresses import AddressPool
from mig_spawner.testing.kube.kubelet.claims import ClaimFolders, Provisioner
from mig_spawner.testing.kube.kubelet.client import Cluster, KubeClient, Mirror, key_of
from mig_spawner.testing.kube.kubelet.node import NodeSpec, keep_alive, register, sign_off
from mig_spawner.testing.kube.kubelet.pod import PodWorker, Site
from mig_spawner.testing.kube.kubelet.processes import Nursery
from mig_spawner.testing.kube.kubelet.recorder import Recorder
from mig_spawner.testing.kube.kubelet.scheduler import Scheduler
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)

_LINUX_PATH = "/usr/local/bin:/usr/bin:/bin"


class Kubelet:
    """Registers nodes and runs the pods that are bound to them. Use as an async context manager.

    A pod is one process, in a session and at a loopback address of its own, with the command, arguments and environment
    of its container `notebook` (or its first one), and with the folder of its first claim as home. It is also the
    cluster's scheduler, unless `schedule` is off, and its volume provisioner. Init containers, further containers,
    probes, lifecycle hooks, security contexts, secret and config map volumes, logs and exec are not there.

    When the context ends all processes are killed and the nodes are no longer ready; when the whole program dies the
    processes die as well.
    """

    def __init__(
        self,
        kube: str | Path,
        nodes: Sequence[NodeSpec],
        *,
        state_dir: Path,
        schedule: bool = True,
        path_prefix: Sequence[Path] = (),
        extra_env: Callable[[Manifest], Mapping[str, str]] | None = None,
        back_off: float = 10.0,
    ) -> None:
        """`kube`: the URL of an API server, or the path of a kubeconfig.
        `state_dir`: where claims (`claims/namespace/name`) and output (`logs/namespace_name.log`) are kept.
        `path_prefix`: folders that come first in the pods' PATH, before those of this interpreter.
        `extra_env`: what a device plugin would add for a pod, such as `NVIDIA_VISIBLE_DEVICES`; the pod's own wins. If the pod asked
            for that device, its status says so, as from Kubernetes 1.36 on. Asked more than once for a pod.
        `back_off`: seconds before the second restart of a container that ends; doubles up to five minutes.
        """
        self._nodes = {spec.name: spec for spec in nodes}
        self._state_dir = state_dir.absolute()
        self._schedules = schedule
        self._path_prefix = [path.absolute() for path in path_prefix]
        self._extra_env = extra_env
        self._client = KubeClient(Cluster.read(kube))
        self._nursery = Nursery()
        folders = ClaimFolders(self._state_dir / "claims")
        self._site = Site(
            client=self._client,
            recorder=Recorder(self._client, "kubelet"),
            nursery=self._nursery,
            addresses=AddressPool(),
            folders=folders,
            state_dir=self._state_dir,
            base_environment=self._base_environment,
            allocatable=lambda node: self._nodes[node].allocatable,
            back_off_s=back_off,
        )
        self._provisioner = Provisioner(self._client, folders)
        self._pods = Mirror(self._client, "/api/v1/pods", self._see_pod)
        self._node_copies = Mirror(self._client, "/api/v1/nodes", self._wake_scheduler)
        self._claims = Mirror(self._client, "/api/v1/persistentvolumeclaims", self._see_claim)
        self._scheduler = Scheduler(self._client, self._pods.objects, self._node_copies.objects, self._claims.objects)
        self._workers: dict[str, PodWorker] = {}  # by uid
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_starting = False

    def running(self) -> dict[str, int]:
        """The process id of each pod that runs now, by `namespace/name`."""
        return {
            key_of(worker.pod): worker.process.pid
            for worker in self._workers.values()
            if worker.process is not None and worker.process.is_running
        }

    async def kill_pod(self, namespace: str, name: str) -> None:
        """Kills the process of a pod with SIGKILL, children and all, as an out-of-memory killer would. The pod's
        restart policy decides what follows. Raises `LookupError` when no such pod runs."""
        for worker in self._workers.values():
            if key_of(worker.pod) == f"{namespace}/{name}" and worker.process is not None and worker.process.is_running:
                worker.process.kill()
                await worker.process.wait()
                return
        raise LookupError(f"no process runs for pod {namespace}/{name}")

    def log_path(self, namespace: str, name: str) -> Path:
        """The file that the output of a pod goes to; earlier pods of the same name wrote to it as well."""
        return self._site.log_path(namespace, name)

    async def __aenter__(self) -> Self:
        for folder in ("claims", "logs", "pods"):
            (self._state_dir / folder).mkdir(parents=True, exist_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._client)
            stack.push_async_callback(self._nursery.close)
            stack.push_async_callback(self._end_tasks)
            await self._nursery.open()
            stack.push_async_callback(self._sign_off)
            for spec in self._nodes.values():
                await register(self._client, spec)
            self._is_starting = True
            for mirror in (self._node_copies, self._claims, self._pods):
                self._spawn(mirror.follow(await mirror.load()))
            self._is_starting = False
            for spec in self._nodes.values():
                self._spawn(keep_alive(self._client, spec))
            self._spawn(self._provisioner.run())
            if self._schedules:
                self._spawn(self._scheduler.run())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _sign_off(self) -> None:
        await asyncio.gather(*(sign_off(self._client, spec) for spec in self._nodes.values()))

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the kubelet lost one of its tasks", exc_info=error)

    def _see_pod(self, kind: str, pod: Manifest) -> None:
        self._scheduler.wake()
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker is not None:
                worker.remove()
            return
        if worker is not None:
            worker.see(pod)
            return
        phase = pod["status"].get("phase")
        if pod["spec"].get("nodeName") not in self._nodes:
            return
        if phase in {"Succeeded", "Failed"} and not pod["metadata"].get("deletionTimestamp"):
            return
        worker = self._workers[uid] = PodWorker(self._site, pod)
        worker.see(pod)
        self._spawn(self._run(worker, was_left=self._is_starting and phase == "Running"))

    async def _run(self, worker: PodWorker, *, was_left: bool) -> None:
        try:
            await worker.run(was_left=was_left)
        finally:
            self._workers.pop(worker.pod["metadata"]["uid"], None)

    def _see_claim(self, kind: str, claim: Manifest) -> None:
        self._provisioner.see(kind, claim)
        self._scheduler.wake()

    def _wake_scheduler(self, kind: str, obj: Manifest) -> None:
        self._scheduler.wake()

    def _base_environment(self, pod: Manifest) -> dict[str, str]:
        """What an image would bring along."""
        own = [Path(sys.executable).parent, *map(Path, os.environ.get("PATH", _LINUX_PATH).split(os.pathsep))]
        folders = dict.fromkeys(str(folder) for folder in [*self._path_prefix, *own])
        return {
            "PATH": os.pathsep.join(folders),
            "LANG": "C.UTF-8",
            "USER": _user_name(),
            "HOSTNAME": pod["metadata"]["name"],
            **(self._extra_env(pod) if self._extra_env else {}),
        }


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return str(os.getuid())
