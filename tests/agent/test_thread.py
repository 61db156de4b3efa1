"""A driver has one thread, whatever the agent does with it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.wire.node import DesiredInstance, DestroyableInstance


def noting(node: SimulatedNode, calls: list[tuple[str, int]]) -> Driver:
    """A driver that notes each call and the thread it came from."""

    def noted(name: str) -> Callable[..., Any]:
        def call(self: FakeDriver, *args: object) -> object:
            calls.append((name, threading.get_ident()))
            return getattr(FakeDriver, name)(self, *args)

        return call

    kind = type("Noting", (FakeDriver,), {name: noted(name) for name in Driver.__abstractmethods__})
    driver: Driver = kind(node)
    return driver


async def test_all_calls_come_from_one_thread_that_is_not_the_loops(
    allocator: Any, start_agent: Callable[..., Awaitable[Any]]
) -> None:
    calls: list[tuple[str, int]] = []
    node = SimulatedNode("node-a", ["h100-80gb"])
    (gpu,) = node.gpu_uuids()
    agent = await start_agent(node=node, driver=noting(node, calls), report_interval_s=0.2)
    place = {"gpu_uuid": gpu, "profile_id": 19, "start": 0, "size": 1}
    await allocator.want(instances=(DesiredInstance(lease_id="l1", **place),))
    await allocator.settled()
    await allocator.want(instances=(), destroy=(DestroyableInstance(**place),))
    await allocator.until(lambda r: r.applied_generation == allocator.desired.generation and not r.gpus[0].instances)
    await agent.stop()
    assert {name for name, _ in calls} == set(Driver.__abstractmethods__), "each of the calls was made"
    (thread,) = {number for _, number in calls}
    assert thread != threading.get_ident()
