"""Agent and allocator together, over real HTTP and a real ledger: a lease becomes a device, and nothing is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.loop import AgentLoop
from mig_spawner.agent.thread import DriverThread
from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import SimulatedNode, Verb
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest, LeaseState

SERVICE_TOKEN, AGENT_TOKEN = "service-token-of-the-test", "agent-token-of-the-test"
WAIT_S = 15.0


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[AllocatorApp]:
    given = {
        "bind_url": "http://127.0.0.1:0/services/mig/",
        "database_url": f"sqlite:///{tmp_path}/ledger.sqlite",
        "service_tokens": [SERVICE_TOKEN],
        "agent_tokens": {"node-a": AGENT_TOKEN},
    }
    app = AllocatorApp(config=Config(AllocatorApp=given))
    await app.open()
    yield app
    await app.close()


@pytest.fixture
async def hub(ledger: AllocatorApp) -> AsyncIterator[AllocatorClient]:
    async with AllocatorClient(ledger.url, SERVICE_TOKEN) as client:
        yield client


@asynccontextmanager
async def agent(ledger: AllocatorApp, node: SimulatedNode, *, dynamic: bool = True) -> AsyncIterator[AgentLoop]:
    """A running agent, until the block ends. It has reported once."""
    thread = DriverThread(FakeDriver(node))
    await thread.open()
    async with AllocatorClient(ledger.url, AGENT_TOKEN) as client:
        loop = AgentLoop("node-a", thread, client, dynamic=dynamic, simulated=True, report_interval_s=0.5)
        task = asyncio.ensure_future(loop.run())
        await until(lambda: loop.rounds > 1)
        yield loop
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        await thread.close()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not reached():
            await asyncio.sleep(0.01)


async def acquire(hub: AllocatorClient, user: str, profile: str | None, *, wait_s: float = WAIT_S) -> LeaseDocument:
    request = LeaseRequest(holder=HolderDocument(user_id=user), accelerator_partition_type=profile)
    return await hub.acquire(request, wait_s=wait_s)


async def release(hub: AllocatorClient, lease: LeaseDocument) -> LeaseDocument:
    return await hub.release(lease.lease_id, LeaseRelease(reason=EndReason.STOPPED, pod=PodFate.GONE))


def devices(node: SimulatedNode, index: int = 0) -> set[str]:
    gpu_uuid = node.gpu_uuids()[index]
    return {str(i.mig_uuid) for i in node.instances(gpu_uuid)} if node.read_gpu(gpu_uuid)[1] else set()


async def test_seven_get_a_slice_each_and_the_eighth_the_first_that_is_free(
    ledger: AllocatorApp, hub: AllocatorClient
) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    async with agent(ledger, node):
        leases = await asyncio.gather(*(acquire(hub, str(n), "1g.10gb") for n in range(7)))
        assert {lease.state for lease in leases} == {LeaseState.READY}
        assert {lease.device_uuid for lease in leases} == devices(node)
        assert len(devices(node)) == 7
        eighth = await acquire(hub, "8", "1g.10gb", wait_s=0)
        assert (eighth.state, eighth.position) == (LeaseState.QUEUED, 1)
        assert (await release(hub, leases[3])).state in (LeaseState.RELEASING, LeaseState.CLOSED)
        eighth = await acquire(hub, "8", "1g.10gb")
        assert eighth.state is LeaseState.READY
        assert eighth.device_uuid in devices(node)
        for lease in (*leases, eighth):
            await release(hub, lease)
        await until(lambda: devices(node) == set())


async def test_slice_and_whole_take_turns_on_one_gpu(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["h100-80gb"])
    (gpu,) = node.gpu_uuids()
    async with agent(ledger, node):
        first = await acquire(hub, "1", "3g.40gb")
        assert first.device_uuid in devices(node)
        await release(hub, first)
        await until(lambda: devices(node) == set())
        whole = await acquire(hub, "2", None)
        assert (whole.state, whole.device_uuid) == (LeaseState.READY, gpu)
        assert not node.read_gpu(gpu)[1]
        await release(hub, whole)
        again = await acquire(hub, "3", "7g.80gb")
        assert again.device_uuid in devices(node)


async def test_what_cannot_be_made_here_is_made_there(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["a100-80gb", "a100-80gb"])
    first, second = node.gpu_uuids()
    node.fail_next(Verb.CREATE_GPU_INSTANCE, times=1000, gpu_uuid=first)
    async with agent(ledger, node):
        lease = await acquire(hub, "1", "1g.10gb")
        while lease.state is not LeaseState.READY:
            lease = await hub.lease(lease.lease_id, wait_s=WAIT_S, known=lease)
        assert lease.placement is not None
        assert lease.placement.gpu_uuid == second
        assert lease.device_uuid in devices(node, 1)


async def test_a_slice_in_use_is_not_given_on(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    async with agent(ledger, node) as loop:
        lease = await acquire(hub, "1", "7g.80gb")
        node.set_processes(str(lease.device_uuid), 1)
        rounds = loop.rounds
        await until(lambda: loop.rounds > rounds + 1)
        await release(hub, lease)
        other = await acquire(hub, "2", "7g.80gb", wait_s=1)
        assert other.state is LeaseState.QUEUED
        assert devices(node) == {lease.device_uuid}
        node.set_processes(str(lease.device_uuid), 0)
        other = await acquire(hub, "2", "7g.80gb")
        assert other.state is LeaseState.READY


async def test_a_lost_gpu_takes_no_new_leases_and_loses_none(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["a100-80gb", "a100-80gb"])
    async with agent(ledger, node) as loop:
        lease = await acquire(hub, "1", "4g.40gb")
        assert lease.placement is not None
        node.lose(lease.placement.gpu_uuid)
        rounds = loop.rounds
        await until(lambda: loop.rounds > rounds + 1)
        assert (await hub.lease(lease.lease_id)).state is LeaseState.READY
        other = await acquire(hub, "2", "1g.10gb")
        assert other.placement is not None
        assert other.placement.gpu_uuid != lease.placement.gpu_uuid


async def test_a_static_partition_is_leased_as_it_stands(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    made = node.cut(node.gpu_uuids()[0], [ProfileName(3, 40), ProfileName(1, 10)])
    async with agent(ledger, node, dynamic=False):
        lease = await acquire(hub, "1", "3g.40gb")
        assert (lease.state, lease.device_uuid) == (LeaseState.READY, made[0].mig_uuid)
        await release(hub, lease)
        again = await acquire(hub, "2", "3g.40gb")
        assert again.device_uuid == made[0].mig_uuid
        assert devices(node) == {i.mig_uuid for i in made}


async def test_an_agent_that_comes_back_finishes_what_was_begun(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    async with agent(ledger, node):
        kept = await acquire(hub, "1", "3g.40gb")
        gone = await acquire(hub, "2", "1g.10gb")
    await release(hub, gone)
    new: Any = asyncio.ensure_future(acquire(hub, "3", "1g.10gb"))
    async with agent(ledger, node):
        lease = await new
        assert lease.state is LeaseState.READY
        await until(lambda: devices(node) == {kept.device_uuid, lease.device_uuid})
        assert (await hub.lease(kept.lease_id)).state is LeaseState.READY


async def test_after_a_boot_the_old_leases_end_and_new_ones_begin(ledger: AllocatorApp, hub: AllocatorClient) -> None:
    node = SimulatedNode("node-a", ["h100-80gb"])
    async with agent(ledger, node):
        lease = await acquire(hub, "1", "1g.10gb")
    node.reboot()
    async with agent(ledger, node):
        ended = await hub.lease(lease.lease_id)
        while ended.reason is None:
            ended = await hub.lease(lease.lease_id, wait_s=WAIT_S, known=ended)
        assert ended.reason is EndReason.NODE_REBOOTED
        assert devices(node) == set(), "it is not made again for somebody whose work is gone"
