"""What devices use, through the report: kept with the lease, shown with the node, and joined to whose it is."""

from __future__ import annotations

from typing import Any

import pytest

from mig_spawner.wire.lease import LeaseState
from mig_spawner.wire.menu.seen import PeakDocument
from mig_spawner.wire.node import Health, NodeReport, UsageDocument
from tests.allocator.rig import Node, Rig


def using(node: Node, memory_mib: int | None, *, start: int = 0) -> NodeReport:
    """The report of a node whose instance at a start uses so much memory."""
    (instance,) = (i for i in node.board.instances.values() if i.start == start)
    usage = UsageDocument(
        gpu_uuid=node.board.gpu.gpu_uuid,
        device_uuid=str(instance.mig_uuid),
        gpu_instance_id=instance.gpu_instance_id,
        memory_used_mib=memory_mib,
    )
    return node.document().model_copy(update={"usage": (usage,)})


async def owners(rig: Rig) -> list[dict[str, str]]:
    async with rig.http() as http:
        lines = (await http.get("metrics")).text.splitlines()
    found = [line for line in lines if line.startswith("mig_lease_device_info{")]
    return [
        dict(pair.split("=", 1) for pair in line[line.index("{") + 1 : line.index("}")].split(",")) for line in found
    ]


async def test_the_most_memory_stays_with_the_lease_after_its_end(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    assert lease.placement is not None
    assert lease.peak_memory_mib is None
    for used, peak in ((300, 300), (None, 300), (4000, 4000), (20, 4000)):
        await node.client.report("n1", using(node, used, start=lease.placement.start))
        assert (await rig.state(lease)).peak_memory_mib == peak
    rows = len(rig.audit(lease))
    await rig.release(lease)
    await node.report()
    closed = await rig.state(lease)
    assert (closed.state, closed.peak_memory_mib) == (LeaseState.CLOSED, 4000)
    used_before = (await rig.hub.menu(user=closed.holder.user_name)).peaks
    assert used_before == (PeakDocument(profile="1g.10gb", memory_mib=4000),)
    assert (await rig.hub.menu(user="somebody else")).peaks == ()
    assert len(rig.audit(lease)) == rows + 2, "a measurement is no change"


async def test_the_next_lease_of_the_same_device_begins_anew(rig: Rig) -> None:
    node = await rig.node()
    first = await rig.active("a", "7g.80gb")
    await node.client.report("n1", using(node, 4000))
    await rig.release(first)
    await node.turn()
    second = await rig.acquire("b", "7g.80gb")
    await node.turn()
    second = await rig.state(second)
    assert (second.device_uuid, second.peak_memory_mib) == (first.device_uuid, None)


async def test_a_node_shows_what_its_devices_used(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    assert lease.placement is not None
    await node.client.report("n1", using(node, 300, start=lease.placement.start))
    async with rig.http() as http:
        (shown,) = (await http.get("api/v1/nodes")).json()["nodes"]
    assert [(u["device_uuid"], u["memory_used_mib"], u["sm"]) for u in shown["usage"]] == [
        (lease.device_uuid, 300, None)
    ]


@pytest.mark.parametrize("named", [False, True])
async def test_a_device_is_joined_to_its_lease_by_gpu_and_instance(make_rig: Any, named: bool) -> None:
    rig: Rig = await make_rig(metrics_name_people=named)
    node = await rig.node()
    lease = await rig.active("a")
    whole = await rig.acquire("w", None)
    assert whole.state is LeaseState.QUEUED
    (owner,) = await owners(rig)
    (instance,) = node.board.instances.values()
    assert owner["UUID"] == f'"{node.board.gpu.gpu_uuid}"'
    assert owner["GPU_I_ID"] == f'"{instance.gpu_instance_id}"'
    assert owner["GPU_I_PROFILE"] == '"1g.10gb"'
    assert owner["lease"] == f'"{lease.lease_id}"'
    assert owner["user"] == ('"name-a"' if named else '""')
    rig.clock.move(120)
    assert await owners(rig) == [], "of a silent node nothing is known"


async def test_equal_instance_ids_on_two_gpus_are_joined_each_to_its_own(rig: Rig) -> None:
    node = await rig.node(models=("a100-80gb", "a100-80gb"), dynamic=False, report=False)
    devices = {board.add("3g.40gb", 0).mig_uuid: board.gpu.gpu_uuid for board in node.boards}
    await node.report()
    leases = {lease.lease_id: lease for lease in [await rig.acquire(user, "3g.40gb") for user in "ab"]}
    found = {(o["UUID"], o["GPU_I_ID"]): o["lease"].strip('"') for o in await owners(rig)}
    assert {number for _, number in found} == {'"1"'}
    assert {gpu.strip('"'): leases[lease].device_uuid for (gpu, _), lease in found.items()} == {
        gpu: device for device, gpu in devices.items()
    }


async def test_sick_gpus_are_counted(rig: Rig) -> None:
    node = await rig.node(models=("a100-80gb", "a100-80gb"))
    node.board.health = Health.DRAINING
    await node.report()
    async with rig.http() as http:
        text = (await http.get("metrics")).text
    assert 'mig_gpu_health_count{health="ok"} 1.0' in text
    assert 'mig_gpu_health_count{health="draining"} 1.0' in text
    assert 'mig_gpu_health_count{health="bad"} 0.0' in text
