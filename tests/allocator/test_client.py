"""Both clients against a real allocator, on a wire that fails, and on one that is not there."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.client import AllocatorClient, Patience, SyncAllocatorClient
from mig_spawner.wire.lease import LeaseRelease, LeaseState
from tests.allocator.process import AllocatorProcess
from tests.allocator.proxy import BadWire, Fault
from tests.allocator.rig import SERVICE_TOKEN, Rig

QUICK = Patience(first_s=0.01, longest_s=0.05)


@pytest.fixture
async def wire(rig: Rig) -> AsyncIterator[BadWire]:
    await rig.node()
    async with BadWire(rig.app.url).open() as wire:
        yield wire


@pytest.mark.parametrize("faults", [[fault] for fault in Fault] + [[Fault.LOST, Fault.BUSY, Fault.CUT]], ids=str)
async def test_an_acquire_over_a_bad_wire_gives_one_lease(rig: Rig, wire: BadWire, faults: list[Fault]) -> None:
    wire.faults.extend(faults)
    async with AllocatorClient(wire.url, SERVICE_TOKEN, patience=QUICK) as client:
        lease = await client.acquire(rig.request("1"))
    assert lease.state is LeaseState.GRANTED
    assert wire.connections == len(faults) + 1
    assert [one.lease_id for one in (await rig.hub.leases()).leases] == [lease.lease_id]


@pytest.mark.parametrize("fault", Fault, ids=str)
async def test_the_twin_that_blocks_does_the_same(rig: Rig, wire: BadWire, fault: Fault) -> None:
    wire.faults.append(fault)

    def lease_and_release() -> tuple[str, LeaseState]:
        with SyncAllocatorClient(wire.url, SERVICE_TOKEN, patience=QUICK) as client:
            lease = client.acquire(rig.request("1"))
            wire.faults.append(fault)
            assert client.leases(user_id="1").leases == (lease,)
            return lease.lease_id, client.release(lease.lease_id, LeaseRelease()).state

    lease_id, state = await asyncio.to_thread(lease_and_release)
    assert state is LeaseState.RELEASING
    assert (await rig.hub.lease(lease_id)).state is LeaseState.RELEASING


async def test_what_may_not_be_done_twice_is_left_to_the_caller(rig: Rig, wire: BadWire) -> None:
    await rig.acquire("1")
    wire.faults.append(Fault.LOST)
    async with AllocatorClient(wire.url, SERVICE_TOKEN, patience=QUICK) as client:
        with pytest.raises(AllocatorUnavailable, match="RemoteProtocolError"):
            await client.release_holder("1", "", LeaseRelease())
    assert wire.connections == 1


async def test_a_no_comes_through(rig: Rig, wire: BadWire) -> None:
    wire.faults.append(Fault.BUSY)
    async with AllocatorClient(wire.url, SERVICE_TOKEN, patience=QUICK) as client:
        with pytest.raises(AllocatorRefused) as caught:
            await client.acquire(rig.request("1", "7g.999gb"))
    assert (caught.value.status, caught.value.code) == (422, "impossible")


async def test_where_nobody_listens_it_says_so_and_is_soon_left_alone() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/services/mig"
        patience = Patience(attempts=2, first_s=0.01, break_after=4, break_s=60)
        async with AllocatorClient(url, SERVICE_TOKEN, patience=patience) as client:
            for says in ("ConnectError", "ConnectError", "4 times in a row"):
                with pytest.raises(AllocatorUnavailable, match=says) as caught:
                    await client.availability()
                assert SERVICE_TOKEN not in str(caught.value)


async def test_a_restart_of_the_allocator_is_waited_out(tmp_path: Path) -> None:
    """A long poll that was under way when the allocator was killed goes on when it is back."""
    async with AllocatorProcess(tmp_path / "ledger.sqlite", {"n1": "agent-token-of-n1"}) as process:
        patience = Patience(attempts=200, first_s=0.05, longest_s=0.2, budget_s=120, break_after=None)
        async with AllocatorClient(process.url, SERVICE_TOKEN, patience=patience) as client:
            await client.availability()
            poll = asyncio.create_task(client.availability())
            await process.end(signal.SIGKILL)
            late = asyncio.create_task(client.leases())
            await asyncio.sleep(0)
            await process.start()
            await poll
            assert (await late).leases == ()
