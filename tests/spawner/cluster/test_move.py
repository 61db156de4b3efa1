"""A node with a slice and no CPU left: the real scheduler's words reach the user, and the lease moves to another node."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from mig_spawner.domain.lease import EndReason
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.move import MOVES
from tests.controlplane.corner import eventually
from tests.spawner.cluster.world import MakeWorld, make_world, stop

__all__ = ["make_world"]

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

SHORT = "Insufficient cpu"


async def test_the_scheduler_is_heard_and_the_lease_moves_to_another_node(make_world: MakeWorld) -> None:
    world = await make_world({"full": {"cpu": "500m"}, "roomy": {"cpu": "4"}})
    spawner = world.make()
    starting = spawner.start()
    messages = [str(event["message"]) async for event in spawner.progress()]
    await starting
    # Its own words as they came, and what follows from them.
    assert any("[Warning] 0/" in message and SHORT in message for message in messages), messages
    told = next(m for m in messages if m.startswith(f"The scheduler finds no room on {world.nodes['full']}: 0/"))
    assert SHORT in told
    assert any(world.nodes["roomy"] in message and "Slice held" in message for message in messages), messages
    assert any("Successfully assigned" in message for message in messages), messages
    assert await world.node_of_pod() == world.nodes["roomy"]
    [lease] = (await world.allocator.leases()).leases
    assert lease.placement is not None
    assert lease.placement.node == world.nodes["roomy"]
    assert await spawner.poll() is None
    await stop(spawner)
    await eventually(world.none_left, "the end of the lease")


async def test_where_no_other_node_can_serve_the_start_fails_with_the_schedulers_words(make_world: MakeWorld) -> None:
    world = await make_world({"full": {"cpu": "500m"}})
    spawner = world.make()
    with pytest.raises(SpawnRefused) as refused:
        await spawner.start()
    said = refused.value.message
    assert said.startswith(f"There is no room for this server on {world.nodes['full']}. The scheduler says: 0/"), said
    assert SHORT in said
    assert refused.value.reason == Reason.CAPACITY.value
    await stop(spawner)
    await eventually(world.none_left, "the end of the lease")
    assert await world.node_of_pod() is None


async def test_a_start_ends_after_some_moves(make_world: MakeWorld) -> None:
    world = await make_world({f"full-{number}": {"cpu": "500m"} for number in range(MOVES + 1)})
    spawner = world.make(unschedulable_timeout=0.5)
    with pytest.raises(SpawnRefused, match="enough nodes for one start") as refused:
        await spawner.start()
    assert all(node in refused.value.message for node in world.nodes.values())
    await stop(spawner)
    await eventually(world.none_left, "the end of the lease")


async def test_with_no_time_set_it_waits_until_there_is_room(make_world: MakeWorld) -> None:
    world = await make_world({"full": {"cpu": "1500m"}, "roomy": {"cpu": "4"}})
    core, namespace = world.corner.core, world.corner.namespace
    container = {"name": "a", "image": "b", "resources": {"requests": {"cpu": "1"}}, "command": ["sleep", "600"]}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": world.nodes["full"]}}
    await core.create_namespaced_pod(namespace, {"metadata": {"name": "greedy"}, "spec": spec})
    await eventually(world.node_of_pod, "the other pod's place")
    spawner = world.make(unschedulable_timeout=0)
    starting = spawner.start()

    async def told() -> bool:
        return spawner._unplaced() is not None

    await eventually(told, "the scheduler's refusal")
    await core.delete_namespaced_pod("greedy", namespace, grace_period_seconds=0)
    await starting
    assert await world.node_of_pod() == world.nodes["full"]
    await stop(spawner)


async def test_a_start_that_is_cancelled_while_it_moves_leaves_nothing(make_world: MakeWorld) -> None:
    world = await make_world({"full": {"cpu": "500m"}, "also-full": {"cpu": "500m"}})
    spawner = world.make()
    starting = spawner.start()
    async for event in spawner.progress():
        if "finds no room" in str(event["message"]):
            break
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await stop(spawner)
    await eventually(world.none_left, "the end of the lease")
    assert await world.node_of_pod() is None
    assert spawner._end_reason() is EndReason.CANCELLED
