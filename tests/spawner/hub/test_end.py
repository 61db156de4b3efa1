"""Every way in which a start or a server ends, and the slice back in the pool after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, World

pytestmark = [pytest.mark.hub, pytest.mark.slow]


async def test_an_outage_of_the_allocator_costs_new_gpu_servers_and_nothing_else(desk: Desk, world: World) -> None:
    ada, bob, eve, kim = [await desk.person(name) for name in ("ada", "bob", "eve", "kim")]
    await asyncio.gather(ada.start({"mig": "small"}), bob.start({"mig": "small"}))
    await desk.until(ada.ready)
    await desk.until(bob.ready)
    before, pod = (await desk.allocator.leases()).leases, await ada.pod()
    world.allocator.kill()
    try:
        await eve.start({"mig": "none"})
        await desk.until(eve.ready)
        answer = await kim.start({"mig": "small"})
        message = answer.json()["message"] if answer.status_code != 202 else await kim.failure()
        assert "The GPU allocator does not answer" in message
        assert "start without a GPU" in message
        assert (await eve.stop()).status_code in {202, 204}
        await desk.until(eve.stopped)
        await bob.stop()
        await desk.until(bob.stopped, "nobody has to hear a stop for it to happen")
    finally:
        world.start_allocator()

    async def only_adas() -> bool:
        return [x.lease_id for x in (await desk.allocator.leases()).leases] == [
            x.lease_id for x in before if x.holder.user_name == ada.name
        ]

    await desk.until(only_adas, "the stop is said again until it is heard")
    assert await ada.ready()
    now = await ada.pod()
    assert pod is not None
    assert now is not None
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_pod_that_vanishes_gives_its_slice_back(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    pod = await ada.pod()
    assert pod is not None
    await desk.kube.delete(f"pods/{pod['metadata']['name']}")
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)


async def test_a_killed_hub_keeps_servers_and_leases_and_forgets_who_waited(desk: Desk, world: World) -> None:
    ada, bob, eve = [await desk.person(name) for name in ("ada", "bob", "eve")]
    await asyncio.gather(ada.start({"mig": "all"}), bob.start({"mig": "none"}))
    await desk.until(ada.ready)
    await desk.until(bob.ready)
    [before] = (await desk.allocator.leases()).leases
    await eve.start({"mig": "all"})
    await eve.waiting()
    world.hub.kill()
    world.start_hub()

    async def one_lease() -> bool:
        return len((await desk.allocator.leases()).leases) == 1

    await desk.until(one_lease, "the place in line is given back")
    await desk.until(ada.ready)
    [after] = (await desk.allocator.leases()).leases
    assert (after.lease_id, after.device_uuid) == (before.lease_id, before.device_uuid)
    assert (await ada.environment())["NVIDIA_VISIBLE_DEVICES"] == before.device_uuid
    await ada.stop()
    await desk.until(desk.all_free)
    assert await bob.ready()


async def test_a_pod_that_never_runs_gives_its_slice_back(desk: Desk, world: World) -> None:
    ada = await desk.person("short")
    world.knobs.stuck_pending = "*"
    await ada.start({"mig": "small"})
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)
    assert await ada.pod() is None


async def test_a_pod_that_comes_after_its_cancellation_is_deleted(desk: Desk, world: World) -> None:
    ada = await desk.person()
    world.knobs.create_delay = 5
    pod_events = desk.pod_events(ada, until="DELETED")
    await ada.start({"mig": "small"})

    async def held() -> bool:
        return bool((await desk.allocator.leases()).leases)

    await desk.until(held)
    assert (await ada.stop()).status_code in {202, 204}
    await desk.until(ada.stopped)
    assert await held(), "the slice waits until no pod can come any more"
    assert [kind async for kind in pod_events] == ["ADDED", "DELETED"]
    await desk.until(desk.all_free)


async def test_a_cluster_that_refuses_the_pod_gives_the_slice_back(desk: Desk, world: World) -> None:
    ada = await desk.person()
    world.knobs.create_refused = "exceeded quota: gpu, requested: pods=1, used: pods=4, limited: pods=4"
    answer = await ada.start({"mig": "small"})
    assert answer.status_code == 403
    assert "quota of this cluster is used up" in answer.json()["message"]
    await desk.until(desk.all_free)


async def test_a_stop_that_the_cluster_fails_keeps_the_slice_until_the_pod_is_gone(desk: Desk, world: World) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    world.knobs.delete_failures = 1
    await ada.stop()
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)
    assert await ada.pod() is None


async def test_a_server_without_a_gpu_leaves_no_pod_either_when_the_cluster_fails_its_stop(
    desk: Desk, world: World
) -> None:
    ada = await desk.person()
    await ada.start({"mig": "none"})
    await desk.until(ada.ready)
    world.knobs.delete_failures = 1
    await ada.stop()
    await desk.until(ada.stopped)

    async def gone() -> bool:
        return await ada.pod() is None

    await desk.until(gone)


async def test_a_lease_that_is_over_ends_its_server(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "brief"})
    await desk.until(ada.ready)
    await desk.until(ada.stopped, "the server is stopped when its time is over")
    await desk.until(desk.all_free)


async def test_a_saved_choice_is_started_again(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    await ada.stop()
    await desk.until(desk.all_free)
    await ada.start()
    await desk.until(ada.ready)
    assert (await ada.environment())["MIG_PROFILE"] == "1g.10gb"
