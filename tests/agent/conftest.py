"""A rig of simulated GPUs for the driver's contract, and the smallest allocator an agent can talk to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.loop import AgentLoop
from mig_spawner.agent.thread import DriverThread
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.wire.client import ONCE, AllocatorClient
from mig_spawner.wire.node import (
    DesiredInstance,
    DesiredNode,
    DesiredWhole,
    DestroyableInstance,
    GPUDocument,
    NodeReport,
)
from mig_spawner.wire.problem import Problem, ProblemCode
from tests.nvml import probe
from tests.nvml.fixture import ADAPTERS, Imitation, imitation, oldest_wheel
from tests.nvml.hardware import OutOfReach, real_driver
from tests.nvml.node import ImitatedNode

__all__ = ["imitation"]

TOKEN = "agent-token-of-the-test"
PATIENCE_S = 15.0


@dataclass
class Rig:
    """A driver in its session, and the hand that disturbs the hardware behind it.

    Attributes:
        let_pass: time goes by, seconds. Only hardware, whose clock nobody moves, takes them.
    """

    driver: Driver
    node: SimulatedNode | ImitatedNode | OutOfReach
    let_pass: Callable[[float], None]

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(g.gpu_uuid for g in self.driver.list_gpus())

    def ready(self, index: int = 0) -> str:
        """A GPU with MIG mode on."""
        gpu_uuid = self.uuids[index]
        self.driver.set_mig_mode(gpu_uuid, True)
        return gpu_uuid

    def cut(self, gpu_uuid: str, profile_id: int, start: int) -> None:
        """An admin cuts a GPU by hand, MIG mode on."""
        if not isinstance(self.node, SimulatedNode):
            self.node.cut(gpu_uuid, profile_id, [start])
            return
        size = next(p.size for p in self.node.profiles(gpu_uuid) if p.profile_id == profile_id)
        self.node.set_mig_mode(gpu_uuid, True)
        made = self.node.create_gpu_instance(gpu_uuid, profile_id, start, size)
        self.node.create_compute_instance(gpu_uuid, made.gpu_instance_id)


MakeRig = Callable[..., Rig]


@pytest.fixture(params=ADAPTERS)
def make_rig(request: pytest.FixtureRequest, imitation: Imitation) -> Iterator[MakeRig]:
    """`make_rig("a100-80gb", …)`: one GPU per model, MIG mode off. The contract runs over every adapter named in the parameters:
    the simulation; the NVML adapter on the C library of `tests/nvml`, with the newest and the oldest wheel; and real GPUs.
    `tests/nvml/test_adapters.py` says why one is not among them."""
    with ExitStack() as stack:

        def make(*models: str) -> Any:
            models = models or ("a100-80gb",)
            if request.param == "hardware":
                return Rig(stack.enter_context(real_driver(*models)), OutOfReach(), time.sleep)
            if request.param == "fake":
                node = SimulatedNode("node-a", models)
                return Rig(stack.enter_context(FakeDriver(node)), node, lambda _: None)
            wheel = oldest_wheel() if request.param == "nvml-oldest-wheel" else None
            driver, imitated, worker = stack.enter_context(imitation.rig(*models, wheel=wheel))
            return Rig(driver, imitated, lambda seconds: worker.run(probe.let_pass, seconds))

        yield make


@dataclass
class TinyAllocator:
    """Keeps what it is told and wants what the test says.

    Attributes:
        away: answer 503 to everything.
        calls: how many requests came, answered or not.
    """

    url: str
    reports: list[NodeReport] = field(default_factory=list)
    desired: DesiredNode = field(default_factory=lambda: DesiredNode(generation=1))
    away: bool = False
    refusal: Problem | None = None
    calls: int = 0
    polls: list[float] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def want(
        self,
        instances: tuple[DesiredInstance, ...] | None = None,
        whole: tuple[DesiredWhole, ...] | None = None,
        destroy: tuple[DestroyableInstance, ...] | None = None,
    ) -> int:
        """Change what is desired; the new generation."""
        changes = {"instances": instances, "whole": whole, "destroy": destroy}
        update: dict[str, object] = {k: v for k, v in changes.items() if v is not None}
        update["generation"] = self.desired.generation + 1
        self.desired = self.desired.model_copy(update=update)
        await self.notify()
        return self.desired.generation

    async def notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, reached: Callable[[NodeReport], bool]) -> NodeReport:
        """The first report, from the newest on, that satisfies the condition."""

        def found() -> bool:
            return bool(self.reports) and reached(self.reports[-1])

        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(found)
            return self.reports[-1]

    async def settled(self) -> NodeReport:
        """The first report that says that what is desired now has been applied."""
        return await self.until(lambda r: r.applied_generation == self.desired.generation)

    async def called(self, more: int) -> None:
        """So many more requests came."""
        goal = self.calls + more
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.calls >= goal)


class _Handler(RequestHandler):
    def initialize(self, allocator: TinyAllocator) -> None:
        self.allocator = allocator

    async def prepare(self) -> None:
        self.allocator.calls += 1
        await self.allocator.notify()
        if self.request.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._fail(Problem(status=401, code=ProblemCode.UNAUTHENTICATED, title="No", detail="Who are you?"))
        elif self.allocator.away:
            self._fail(Problem(status=503, code=ProblemCode.NOT_READY, title="Away", detail="Come back later."))
        elif self.allocator.refusal is not None:
            self._fail(self.allocator.refusal)

    def _fail(self, problem: Problem) -> None:
        self.set_status(problem.status)
        # Finishing without waiting ends `prepare`, and with it the request.
        _ = self.finish(problem.model_dump_json())


class _Report(_Handler):
    async def put(self, node: str) -> None:
        assert node == "node-a"
        self.allocator.reports.append(NodeReport.model_validate_json(self.request.body))
        await self.allocator.notify()
        await self.finish(self.allocator.desired.model_dump_json())


class _Desired(_Handler):
    async def get(self, node: str) -> None:
        known, wait = int(self.get_query_argument("known")), float(self.get_query_argument("wait"))
        self.allocator.polls.append(wait)
        await self.allocator.notify()
        try:
            async with asyncio.timeout(wait), self.allocator.changed:
                await self.allocator.changed.wait_for(lambda: self.allocator.desired.generation != known)
        except TimeoutError:
            pass
        await self.finish(self.allocator.desired.model_dump_json())


@pytest.fixture
async def allocator() -> AsyncIterator[TinyAllocator]:
    """A real HTTP server on a port of its own."""
    sockets = bind_sockets(0, "127.0.0.1")
    tiny = TinyAllocator(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/services/mig")
    routes = [(r".*/api/v1/nodes/([^/]+)", _Report), (r".*/api/v1/nodes/([^/]+)/desired", _Desired)]
    server = HTTPServer(Application([(p, h, {"allocator": tiny}) for p, h in routes], log_function=lambda _: None))
    server.add_sockets(sockets)
    yield tiny
    server.stop()
    await server.close_all_connections()


@dataclass
class Agent:
    """A running agent loop with its GPUs."""

    node: SimulatedNode
    driver: DriverThread
    client: AllocatorClient
    loop: AgentLoop
    task: asyncio.Task[None]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.driver.close()
        await self.client.aclose()


StartAgent = Callable[..., Awaitable[Agent]]


@pytest.fixture
async def start_agent(allocator: TinyAllocator) -> AsyncIterator[StartAgent]:
    """`await start_agent("a100-80gb")`, or with a node of one's own; other arguments go to `AgentLoop`."""
    running: list[Agent] = []

    async def start(
        *models: str,
        node: SimulatedNode | None = None,
        driver: Driver | None = None,
        dynamic: bool = True,
        report_interval_s: float = 5.0,
        token: str = TOKEN,
        **more: Any,
    ) -> Agent:
        node = node or SimulatedNode("node-a", models or ("a100-80gb",))
        thread = DriverThread(driver or FakeDriver(node))
        await thread.open()
        client = AllocatorClient(allocator.url, token, patience=ONCE)
        loop = AgentLoop(
            "node-a", thread, client, dynamic=dynamic, simulated=True, report_interval_s=report_interval_s, **more
        )
        agent = Agent(node, thread, client, loop, asyncio.ensure_future(loop.run()))
        running.append(agent)
        return agent

    yield start
    for agent in running:
        if not agent.task.done():
            await agent.stop()


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "boards" / "node-a.json"


@pytest.fixture
def gpu_of() -> Callable[[NodeReport, str], GPUDocument]:
    """The GPU with this UUID in a report."""

    def find(report: NodeReport, gpu_uuid: str) -> GPUDocument:
        return next(g for g in report.gpus if g.gpu_uuid == gpu_uuid)

    return find
