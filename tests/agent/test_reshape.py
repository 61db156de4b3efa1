"""An approved proposal, end to end: a ledger, an agent with a declared layout, and a driver. Nobody's device is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from traitlets.config import Config

from mig_spawner.agent.loop import AgentLoop
from mig_spawner.agent.thread import DriverThread
from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.domain.layout import read
from mig_spawner.domain.lease import PodFate
from mig_spawner.domain.reshape import ReshapeState
from mig_spawner.testing.gpu import Verb
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest, LeaseState
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeRejection

MakeRig = Callable[..., Any]
SERVICE_TOKEN, AGENT_TOKEN = "service-token-of-the-test", "agent-token-of-the-test"
INSTANCES = ["1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3", "2g.20gb@4", "1g.10gb@6"]
WAIT_S = 30.0
T = TypeVar("T")


class Stage:
    """What a test needs to look at."""

    def __init__(self, rig: Any, app: AllocatorApp, hub: AllocatorClient) -> None:
        self.rig, self.app, self.hub = rig, app, hub

    def there(self) -> dict[str, str | None]:
        """What the allocator was told last: the UUID of each partition."""
        with self.app.desk.store.reading() as tx:
            node = tx.node("node-a")
        assert node is not None
        assert node.report is not None
        return {f"{i.profile}@{i.start}": i.mig_uuid for i in node.report.gpus[0].instances}

    async def acquire(self, user: str, profile: str, **more: Any) -> LeaseDocument:
        holder = HolderDocument(user_id=user)
        return await self.hub.acquire(LeaseRequest(holder=holder, accelerator_partition_type=profile, **more))

    async def proposed(self) -> ReshapeDocument:
        self.app.reshapes.review()
        (found,) = (await self.hub.reshapes()).reshapes
        return found

    async def reaches(self, reshape_id: str, state: ReshapeState) -> ReshapeDocument:
        async def found() -> ReshapeDocument | None:
            one = await self.hub.reshape(reshape_id)
            return one if one.state is state else None

        return await until(found)


async def until(question: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(WAIT_S):
        while not (answer := await question()):
            await asyncio.sleep(0.02)
    return answer


@pytest.fixture
async def stage(make_rig: MakeRig, tmp_path: Path) -> Any:
    rig = make_rig("a100-80gb")
    parts = [{"gpus": "all", "mig": True, "instances": INSTANCES}]
    layout = read({"layouts": {"mine": parts}}, load=str).declaration.layouts["mine"]
    given = {
        "bind_url": "http://127.0.0.1:0/services/mig/",
        "database_url": f"sqlite:///{tmp_path}/ledger.sqlite",
        "service_tokens": [SERVICE_TOKEN],
        "agent_tokens": {"node-a": AGENT_TOKEN},
        "reshape_interval": 0,
        "settle_after": 0,
    }
    app = AllocatorApp(config=Config(AllocatorApp=given))
    await app.open()
    thread = DriverThread(rig.driver)
    async with AllocatorClient(app.url, AGENT_TOKEN) as client, AllocatorClient(app.url, SERVICE_TOKEN) as hub:
        loop = AgentLoop("node-a", thread, client, dynamic=False, simulated=True, report_interval_s=0.5, layout=layout)
        task = asyncio.ensure_future(loop.run())
        found = Stage(rig, app, hub)

        async def reported() -> bool:
            return loop.rounds > 1

        await until(reported)
        yield found
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
    await app.close()


async def test_who_waits_gets_a_slice_of_idle_partitions_and_neighbours_never_notice(stage: Stage) -> None:
    await stage.acquire("holder", "2g.20gb", duration=3600)
    waits = await stage.acquire("waits", "2g.20gb")
    assert waits.state is LeaseState.QUEUED
    before = stage.there()
    assert sorted(before) == sorted(INSTANCES)
    found = await stage.proposed()
    assert (found.remove, found.make) == (("1g.10gb@0", "1g.10gb@1"), ("2g.20gb@0",))
    await stage.hub.approve(found.reshape_id, ReshapeApproval())
    await stage.reaches(found.reshape_id, ReshapeState.APPLIED)
    served = await stage.hub.lease(waits.lease_id)
    assert served.state is LeaseState.READY
    after = stage.there()
    assert served.device_uuid == after["2g.20gb@0"]
    kept = ("1g.10gb@2", "1g.10gb@3", "2g.20gb@4", "1g.10gb@6")
    assert [after[place] for place in kept] == [before[place] for place in kept]

    await stage.hub.release_holder("waits", "", LeaseRelease(pod=PodFate.NONE))
    await stage.hub.reject(found.reshape_id, ReshapeRejection())
    await stage.reaches(found.reshape_id, ReshapeState.RETURNED)
    assert sorted(stage.there()) == sorted(INSTANCES)


async def test_a_driver_that_fails_leaves_everything_as_it_was(stage: Stage) -> None:
    await stage.acquire("holder", "2g.20gb", duration=3600)
    await stage.acquire("waits", "2g.20gb")
    found = await stage.proposed()
    stage.rig.node.fail_next(Verb.CREATE_GPU_INSTANCE)
    await stage.hub.approve(found.reshape_id, ReshapeApproval())
    failed = await stage.reaches(found.reshape_id, ReshapeState.FAILED)
    assert failed.reason.startswith("It could not be made: ")
    assert sorted(stage.there()) == sorted(INSTANCES)
    assert (await stage.acquire("later", "1g.10gb")).state is LeaseState.READY


async def test_a_process_that_came_meanwhile_is_left_alone(stage: Stage) -> None:
    await stage.acquire("holder", "2g.20gb", duration=3600)
    await stage.acquire("waits", "2g.20gb")
    found = await stage.proposed()
    device = stage.there()["1g.10gb@1"]
    stage.rig.node.set_processes(device, 1)

    async def ended() -> ReshapeDocument | None:
        stage.app.reshapes.review()
        one = await stage.hub.reshape(found.reshape_id)
        return one if one.state in (ReshapeState.EXPIRED, ReshapeState.FAILED) else None

    with_process = await until(ended)
    assert "1g.10gb@1 is in use" in with_process.reason
    assert stage.there()["1g.10gb@1"] == device
