"""One pod's life on its node: prepare, start, watch, restart, stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mig_spawner.testing.kube.kubelet.addresses import HOST_ADDRESS, AddressPool
from mig_spawner.testing.kube.kubelet.claims import ClaimFolders, translate
from mig_spawner.testing.kube.kubelet.client import ApiError, KubeClient, key_of, pod_path
from mig_spawner.testing.kube.kubelet.environment import (
    ConfigProblem,
    Sources,
    build_environment,
    expand,
    named_objects,
    with_host,
)
from mig_spawner.testing.kube.kubelet.pod_status import (
    KILLED,
    NOT_STARTED,
    ContainerHistory,
    given_by_plugins,
    main_container,
)
from mig_spawner.testing.kube.kubelet.processes import Nursery, PodProcess
from mig_spawner.testing.kube.kubelet.recorder import Recorder
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
_LONGEST_BACK_OFF_S = 300.0
_HEALTHY_AFTER_S = 600.0


@dataclass(frozen=True)
class Site:
    """What all pods of a kubelet share."""

    client: KubeClient
    recorder: Recorder
    nursery: Nursery
    addresses: AddressPool
    folders: ClaimFolders
    state_dir: Path
    base_environment: Callable[[Manifest], Mapping[str, str]]
    allocatable: Callable[[str], Mapping[str, str]]
    back_off_s: float

    def log_path(self, namespace: str, name: str) -> Path:
        """Where the output of a pod goes."""
        return self.state_dir / "logs" / f"{namespace}_{name}.log"


class PodWorker:
    """Runs one pod until it is gone."""

    def __init__(self, site: Site, pod: Manifest) -> None:
        self.pod = pod
        self.process: PodProcess | None = None
        self._site = site
        self._address = site.addresses.take()
        self._scratch = site.state_dir / "pods" / pod["metadata"]["uid"]
        given = given_by_plugins(pod, site.base_environment(pod))
        self._history = ContainerHistory(pod, self._address, given)
        self._stopping = asyncio.Event()
        self._deadline = float("inf")  # when a stopping process is killed, in the loop's time
        self._gone = asyncio.Event()

    def see(self, pod: Manifest) -> None:
        """The pod changed. A deletion time on it means: stop."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            self._deadline = min(self._deadline, asyncio.get_running_loop().time() + grace)
            self._stopping.set()

    def remove(self) -> None:
        """The pod is gone from the API: its process ends at once."""
        self._gone.set()
        self._deadline = 0.0
        self._stopping.set()
        if self.process is not None:
            self.process.kill()

    async def run(self, *, was_left: bool = False) -> None:
        """The whole life. `was_left`: an earlier kubelet ran the pod and took its process along."""
        try:
            if self._stopping.is_set():
                pass
            elif was_left:
                await self._set_status(self._history.terminated(KILLED, "Error", "the node's kubelet was restarted"))
            else:
                await self._live()
            await self._stopping.wait()
            await self._stop_process()
            await self._delete()
        finally:
            if self.process is not None:
                self.process.kill()
            self._site.addresses.give_back(self._address)
            shutil.rmtree(self._scratch, ignore_errors=True)

    async def _live(self) -> None:
        container = main_container(self.pod)
        await self._record("Pulled", f'Container image "{container["image"]}" already present on machine')
        failures = 0
        while True:
            prepared = await self._prepare()
            if prepared is None:
                return
            command, environment, folder = prepared
            try:
                self.process = await self._start(command, environment, folder)
            except (OSError, ValueError) as error:
                message = f"failed to start: {error}"
                await self._record("Failed", f"Error: {message}", is_warning=True)
                await self._set_status(self._history.terminated(NOT_STARTED, "StartError", message))
                return
            began = asyncio.get_running_loop().time()
            await self._set_status(self._history.running(self.process.pid))
            await self._record("Started", f"Started container {container['name']}")
            code = await self._exit_code(self.process)
            if code is None:
                return
            if self.pod["spec"]["restartPolicy"] == "Never" or (
                self.pod["spec"]["restartPolicy"] == "OnFailure" and code == 0
            ):
                await self._set_status(self._history.terminated(code))
                return
            failures = 1 if asyncio.get_running_loop().time() - began > _HEALTHY_AFTER_S else failures + 1
            if not await self._back_off(code, failures):
                return

    async def _prepare(self) -> tuple[list[str], dict[str, str], Path] | None:
        """Command, environment and folder; waits for what is missing. `None` when the pod is to stop meanwhile."""
        container = main_container(self.pod)
        while not self._stopping.is_set():
            try:
                environment, home, mounts = await self._environment(container)
                words = [*(container.get("command") or []), *(container.get("args") or [])]
                if not words:
                    raise ConfigProblem("no command: there is no image here to take one from, so the pod must name it")
                folder = _folder_here(container["workingDir"], mounts, home) if container.get("workingDir") else home
                return [expand(str(word), environment) for word in words], environment, folder
            except ConfigProblem as problem:
                await self._record("Failed", f"Error: {problem}", is_warning=True)
                await self._set_status(self._history.waiting("CreateContainerConfigError", str(problem)))
            except ApiError as error:
                _log.debug("%s waits: %s", key_of(self.pod), error)
            await self._pause(_RETRY_S)
        return None

    async def _environment(self, container: Manifest) -> tuple[dict[str, str], Path, dict[str, Path]]:
        namespace = self.pod["metadata"]["namespace"]
        secrets, config_maps = named_objects(container)
        status = {**self.pod["status"], "podIP": self._address, "hostIP": HOST_ADDRESS}
        sources = Sources(
            {**self.pod, "status": status},
            self._site.allocatable(self.pod["spec"]["nodeName"]),
            {name: await self._find(f"/api/v1/namespaces/{namespace}/secrets/{name}") for name in secrets},
            {name: await self._find(f"/api/v1/namespaces/{namespace}/configmaps/{name}") for name in config_maps},
        )
        mounts = self._site.folders.of_pod(self.pod)
        home = next(iter(mounts.values()), self._scratch)
        home.mkdir(parents=True, exist_ok=True)
        base = {**self._site.base_environment(self.pod), "HOME": str(home)}
        environment = build_environment(container, sources, base)
        environment["HOME"] = str(_folder_here(environment["HOME"], mounts, home))
        if url := environment.get("JUPYTERHUB_SERVICE_URL"):
            environment["JUPYTERHUB_SERVICE_URL"] = with_host(url, self._address)
        return environment, home, mounts

    async def _start(self, command: list[str], environment: Mapping[str, str], folder: Path) -> PodProcess:
        program = shutil.which(command[0], path=environment.get("PATH", ""))
        if program is None:
            raise FileNotFoundError(f'exec: "{command[0]}": executable file not found in $PATH')
        log = self._site.log_path(self.pod["metadata"]["namespace"], self.pod["metadata"]["name"])
        return await self._site.nursery.start([program, *command[1:]], environment=environment, folder=folder, log=log)

    async def _exit_code(self, process: PodProcess) -> int | None:
        """The exit code once the process ends by itself; `None` when the pod is to stop."""
        ended = asyncio.ensure_future(process.wait())
        told = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            return None if self._stopping.is_set() else await ended
        finally:
            for waiter in (ended, told):
                waiter.cancel()

    async def _back_off(self, code: int, failures: int) -> bool:
        """Waits before the next start: not at all the first time, then longer and longer. False: the pod is to stop."""
        self._history.note_exit(code)
        self._history.restarts += 1
        wait = min(self._site.back_off_s * 2 ** (failures - 2), _LONGEST_BACK_OFF_S) if failures > 1 else 0.0
        if wait:
            name = main_container(self.pod)["name"]
            message = f"back-off {wait:g}s restarting failed container={name} pod={key_of(self.pod)}"
            await self._record("BackOff", "Back-off restarting failed container", is_warning=True)
            await self._set_status(self._history.waiting("CrashLoopBackOff", message))
            await self._pause(wait)
        return not self._stopping.is_set()

    async def _stop_process(self) -> None:
        process = self.process
        if process is None or await process.wait(0) is not None:
            return
        if not self._gone.is_set():
            await self._record("Killing", f"Stopping container {main_container(self.pod)['name']}")
        family = process.family()
        process.terminate()
        loop = asyncio.get_running_loop()
        # The deadline may come nearer meanwhile, so it is asked again and again.
        while await process.wait(0.05) is None:
            if loop.time() >= self._deadline:
                process.kill()
        self._site.nursery.kill_stragglers(family)

    async def _delete(self) -> None:
        """The last word to the API, said until it is heard: the pod may go."""
        while not self._gone.is_set():
            try:
                await self._site.client.delete(pod_path(self.pod), grace=0, uid=self.pod["metadata"]["uid"])
            except ApiError as error:
                if error.code in {404, 409}:
                    return
                _log.debug("%s cannot go yet: %s", key_of(self.pod), error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S):
                    await self._gone.wait()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _set_status(self, patch: Manifest) -> None:
        """Tells the API until it listens, or until the pod is gone or another."""
        while not self._gone.is_set():
            try:
                await self._site.client.patch(pod_path(self.pod, "status"), patch)
                return
            except ApiError as error:
                if error.code and error.code < 500:
                    _log.debug("the status of %s is not wanted: %s", key_of(self.pod), error)
                    return
            await self._pause(_RETRY_S)
            if self._stopping.is_set():
                return

    def _record(self, reason: str, message: str, *, is_warning: bool = False) -> Awaitable[None]:
        return self._site.recorder.record(self.pod, reason, message, is_warning=is_warning)

    async def _find(self, path: str) -> Manifest | None:
        try:
            return await self._site.client.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise


def _folder_here(wanted: str, mounts: dict[str, Path], home: Path) -> Path:
    """The folder that a path inside the pod means: on a claim if it lies on one, else as it is, else the home."""
    translated = translate(wanted, mounts)
    if translated is not None:
        translated.mkdir(parents=True, exist_ok=True)
        return translated
    return Path(wanted) if Path(wanted).is_dir() else home
