"""A device plugin on the real control plane: what the kubelet gave is what the ledger says, from the start of a server on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mig_spawner.domain.lease import Holder
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import LeaseRequest
from tests.allocator.rig import Board
from tests.controlplane.corner import eventually
from tests.spawner.cluster.world import MakeWorld, make_world, stop

__all__ = ["make_world"]

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

MIG = "nvidia.com/mig-1g.10gb"
PLUGIN = {"gpu": {"cpu": "4", MIG: "3"}}


def partitions(number: int, gpu_uuid: str) -> Board:
    """Three alike, which stand by themselves."""
    board = Board(find_model("a100-80gb").gpu(gpu_uuid), dynamic=False)
    for start in range(3):
        board.add("1g.10gb", start)
    return board


class Plugin:
    """Gives each pod the device that the test says, by its name."""

    def __init__(self, **starts: int) -> None:
        self._starts = starts

    def __call__(self, pod: Any) -> Mapping[str, str]:
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        return {"NVIDIA_VISIBLE_DEVICES": f"MIG-GPU-0-{space}-19-{self._starts[name]}"}


async def test_servers_are_where_the_kubelet_put_them_and_give_that_back(make_world: MakeWorld) -> None:
    world = await make_world(PLUGIN, board=partitions, extra_env=Plugin(one=1, two=0))
    spawners = [
        world.make(injection="device-plugin", pod_name_template=name, user_id=number)
        for number, name in enumerate(("one", "two"), 1)
    ]
    for spawner in spawners:
        await spawner.start()
    places = {
        lease.holder.user_id: (lease.placement.start, lease.device_known)
        for lease in (await world.allocator.leases()).leases
        if lease.placement is not None
    }
    assert places == {"1": (1, True), "2": (0, True)}
    for spawner in spawners:
        assert await spawner.poll() is None
        await stop(spawner)
    await eventually(world.none_left, "the end of the leases")


async def test_a_server_on_the_device_of_somebody_else_does_not_start(make_world: MakeWorld) -> None:
    world = await make_world(PLUGIN, board=partitions, extra_env=Plugin(server=0))
    small = SliceRequest(ProfileName.parse("1g.10gb"))
    other = await world.allocator.acquire(LeaseRequest.of(small, Holder("dask")))
    await world.allocator.renew(other.lease_id)
    spawner = world.make(injection="device-plugin")
    with pytest.raises(SpawnRefused, match="is leased to another server") as refused:
        await spawner.start()
    assert refused.value.reason == Reason.CAPACITY.value
    await stop(spawner)

    async def only_the_other() -> bool:
        return await world.leases() == [other.lease_id] and await world.node_of_pod() is None

    await eventually(only_the_other, "the end of the start")
