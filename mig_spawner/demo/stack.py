"""The parts of the demo, started in order, watched, and ended in reverse order.

    guard · Kubernetes (in this process, or a real one) and kubelet · proxy · allocator · agents · hub

Each start waits for a condition, never for a time. Whatever ends the demo, the guard removes what is left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import httpx

from mig_spawner.demo import proxy as chp
from mig_spawner.demo.cluster import Cluster
from mig_spawner.demo.guard import on_guard
from mig_spawner.demo.option import KubeKind, Options
from mig_spawner.demo.report import Report
from mig_spawner.demo.wiring import SERVICE, Wiring
from mig_spawner.demo.workspace import Ports, Secrets, Workspace
from mig_spawner.domain.sentence import counted
from mig_spawner.errors import AllocatorError
from mig_spawner.testing.controlplane import find_programs
from mig_spawner.testing.process import Part, cancelled
from mig_spawner.wire.client import AllocatorClient

START_S: Final = 120.0
"""How long a part may take to become ready, on a slow machine that starts others at the same time."""


class Stack:
    """All parts of one demo: `async with Stack(options, report) as stack: ...  # log in at stack.url`

    Attributes:
        workspace: its folders; gone after the end.
        cluster: Kubernetes and the kubelet.
        proxy, allocator, agents, hub: the child processes.

    Raises:
        InvalidRequest: on construction, when the port is in use.
        DemoFailed: on entry, when a part does not come up; with the last lines of its log.
    """

    workspace: Workspace
    cluster: Cluster
    proxy: Part
    allocator: Part
    agents: tuple[Part, ...]
    hub: Part

    def __init__(self, options: Options, report: Report) -> None:
        self.options = options
        self._wiring = Wiring(options, Ports.choose(options.port), Secrets.make(options.nodes))
        self._report = report
        self._exit = AsyncExitStack()

    def __repr__(self) -> str:
        return f"Stack({self.url!r})"

    @property
    def url(self) -> str:
        """Where the browser goes."""
        return self._wiring.url

    @property
    def parts(self) -> tuple[Part, ...]:
        """The child processes, in the order of their start."""
        return (self.proxy, self.allocator, *self.agents, self.hub)

    def client(self) -> AllocatorClient:
        """The allocator's API with the hub's rights. Close it when done."""
        return AllocatorClient(self._wiring.allocator_url, self._wiring.secrets.allocator)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def watch(self) -> NoReturn:
        """Wait until a part ends by itself.

        Raises:
            DemoFailed: saying which, with the last lines of its log.
        """
        watches = [asyncio.create_task(part.fail()) for part in self.parts]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            await cancelled(*watches)

    def tails(self) -> str:
        """The last lines of the logs of those parts that decide."""
        parts = (self.hub, self.allocator)
        return "\n".join(f"The last lines of {part.name}'s log:\n{part.tail()}" for part in parts)

    async def restart_allocator(self) -> None:
        """Start the allocator again after `kill`, and wait until it serves."""
        await self.allocator.start()
        await self._allocator_serves()

    async def restart_hub(self) -> None:
        """Start the hub again after `kill`, and wait until it serves through the proxy, its service with it."""
        await self.hub.start()
        await self._hub_serves()

    async def _allocator_serves(self) -> None:
        await self.allocator.ready(lambda: self._answers(f"{self._wiring.allocator_url}/readyz"), timeout_s=START_S)

    async def _hub_serves(self) -> None:
        await self.hub.ready(lambda: self._answers(f"{self.url}/hub/health"), timeout_s=START_S)
        await self.hub.ready(lambda: self._answers(f"{self.url}{SERVICE}/healthz"), timeout_s=START_S)

    async def _start(self) -> None:
        real = self.options.kube is KubeKind.REAL
        programs = find_programs(os.environ) if real else None
        self.workspace = Workspace.create(self.options.logs)
        await self._exit.enter_async_context(on_guard(self.workspace.root))
        self._http = await self._exit.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=5))
        node, script = await self._find_proxy()
        self.proxy = self._wiring.proxy(self.workspace, node, script)
        self.allocator = self._wiring.allocator(self.workspace)
        self.agents = tuple(self._wiring.agent(self.workspace, n) for n in self.options.nodes)
        self.hub = self._wiring.hub(self.workspace)
        with self._report.step(f"Kubernetes ({self.options.kube}) and the kubelet") as step:
            cluster = Cluster(self.workspace, self.options.nodes, programs=programs)
            self.cluster = await self._exit.enter_async_context(cluster)
            step.note = self.cluster.version
        for part in self.parts:
            self._exit.push_async_callback(part.stop)
        with self._report.step("The proxy"):
            await self.proxy.start()
            await self.proxy.ready(self._proxy_answers, timeout_s=START_S)
        with self._report.step("The allocator"):
            await self.allocator.start()
            await self.hub.start()  # it takes a while as well, and needs nobody yet
            await self._allocator_serves()
        with self._report.step(f"The agents of {counted(len(self.agents), 'node')}, with simulated GPUs"):
            for agent in self.agents:
                await agent.start()
            await self._agents_report()
        with self._report.step("JupyterHub"):
            await self._hub_serves()

    async def _find_proxy(self) -> tuple[chp.Node, Path]:
        node, cache = await chp.find_node(), chp.cache_folder()
        script = chp.installed(cache)
        if script is None:
            with self._report.step(f"Installing {chp.PACKAGE} {chp.VERSION} from npm, once") as step:
                script = await chp.install(node, cache)
                step.note = str(cache)
        return node, script

    async def _answers(self, url: str, headers: Mapping[str, str] | None = None) -> bool:
        try:
            return (await self._http.get(url, headers=headers)).status_code == 200
        except httpx.HTTPError:
            return False

    async def _proxy_answers(self) -> bool:
        url = f"{self._wiring.proxy_api_url}/api/routes"
        return await self._answers(url, {"Authorization": f"token {self._wiring.secrets.proxy}"})

    async def _agents_report(self) -> None:
        """Wait until every node has reported its GPUs."""
        async with self.client() as client:

            async def reported() -> bool:
                try:
                    return (await client.availability()).nodes == len(self.agents)
                except AllocatorError:
                    return False

            for agent in self.agents:
                await agent.ready(reported, timeout_s=START_S)
