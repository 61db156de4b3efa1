"""What the hub tells the allocator of the device that a node picked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest

from mig_spawner.domain.lease import Holder
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.injection.device_plugin import DevicePluginInjection
from mig_spawner.spawner.injection.env import EnvInjection
from mig_spawner.spawner.lease import LeaseKeeper
from mig_spawner.spawner.picked import Picked
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseDocument

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

PLUGIN = DevicePluginInjection("nvidia.com/mig-")
LOG = logging.getLogger("test")
GIVEN = "MIG-2222"
PATH = "leases/lease-1/device"
MakeLease = Callable[..., LeaseDocument]


def pod(device: str = GIVEN) -> dict[str, Any]:
    """A pod as a kubelet of 1.36 shows it; `device` empty for an older one."""
    status = {"name": "notebook", "allocatedResourcesStatus": [{"name": "x", "resources": [{"resourceID": device}]}]}
    return {"status": {"containerStatuses": [status] if device else [{"name": "notebook"}]}}


@pytest.fixture
async def keeper(allocator: ScriptedAllocator, lease: MakeLease) -> AsyncIterator[LeaseKeeper]:
    """Of a server that has `lease-1` on MIG-1111, as far as it knows."""
    async with allocator.client() as client:
        keeper = LeaseKeeper(lambda: client, lambda: Holder("7"), LOG)
        keeper.adopt("lease-1")
        keeper.lease = lease("active", device_known=False)
        allocator.answers = [lease("active", device_uuid=GIVEN)]
        yield keeper


async def test_another_device_is_told_once_and_the_lease_is_on_it(
    keeper: LeaseKeeper, allocator: ScriptedAllocator
) -> None:
    picked = Picked(keeper, LOG)
    for _ in range(2):
        await picked.hear(PLUGIN, pod())
    assert allocator.bodies(PATH) == [{"device_uuid": GIVEN}]
    assert keeper.lease is not None
    assert keeper.lease.device_uuid == GIVEN


async def test_the_leased_one_is_told_as_well(
    keeper: LeaseKeeper, allocator: ScriptedAllocator, lease: MakeLease
) -> None:
    allocator.answers = [lease("active")]
    for _ in range(2):
        await Picked(keeper, LOG).hear(PLUGIN, pod("MIG-1111"))
    assert allocator.bodies(PATH) == [{"device_uuid": "MIG-1111"}]


@pytest.mark.parametrize("seen", [None, pod("")], ids=["no pod yet", "an older kubelet"])
async def test_who_says_nothing_is_not_waited_for(
    keeper: LeaseKeeper, allocator: ScriptedAllocator, seen: dict[str, Any] | None
) -> None:
    await Picked(keeper, LOG).hear(PLUGIN, seen)
    await Picked(keeper, LOG).hear(EnvInjection(), pod())
    assert allocator.calls == []


async def test_a_start_on_the_device_of_somebody_else_is_refused(
    keeper: LeaseKeeper, allocator: ScriptedAllocator
) -> None:
    allocator.answers = [(409, "conflict")]
    with pytest.raises(SpawnRefused, match="Start the server again") as refused:
        await Picked(keeper, LOG).hear(PLUGIN, pod())
    assert refused.value.reason == Reason.CAPACITY.value


@pytest.mark.parametrize("answer", [(404, "not-found"), (503, "not-ready")], ids=str)
async def test_what_cannot_be_told_now_ends_nothing_and_is_told_again(
    keeper: LeaseKeeper, allocator: ScriptedAllocator, lease: MakeLease, answer: tuple[int, str]
) -> None:
    allocator.answers = [answer, lease("active", device_uuid=GIVEN)]
    picked = Picked(keeper, LOG)
    for _ in range(2):
        await picked.hear(PLUGIN, pod())
    assert len(allocator.bodies(PATH)) == 2


async def test_a_server_that_runs_goes_on_and_the_log_has_it_once(
    keeper: LeaseKeeper, allocator: ScriptedAllocator, caplog: pytest.LogCaptureFixture
) -> None:
    allocator.answers = [(409, "conflict")]
    picked = Picked(keeper, LOG)
    async with asyncio.timeout(10):
        while len(allocator.bodies(PATH)) < 3:
            picked.hear_soon(PLUGIN, pod())
            await asyncio.sleep(0)
        while picked._hearing is not None and not picked._hearing.done():
            await asyncio.sleep(0)
    assert caplog.text.count("The ledger and its node disagree") == 1


async def test_an_answer_after_the_end_is_nobodys(
    keeper: LeaseKeeper, allocator: ScriptedAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = AllocatorClient.learn_device

    async def late(client: AllocatorClient, lease_id: str, device_uuid: str) -> LeaseDocument:
        keeper.forget()
        return await learn(client, lease_id, device_uuid)

    monkeypatch.setattr(AllocatorClient, "learn_device", late)
    await Picked(keeper, LOG).hear(PLUGIN, pod())
    assert allocator.bodies(PATH) == [{"device_uuid": GIVEN}]
    assert keeper.lease is None
