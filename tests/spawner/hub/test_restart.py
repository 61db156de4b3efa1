"""Hubs that are killed or shut down in the middle, and what the next one makes of what it finds."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from mig_spawner.wire.lease import LeaseState

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, World

pytestmark = [pytest.mark.hub, pytest.mark.slow]


async def test_a_start_whose_pod_runs_when_the_hub_is_back_goes_on_with_its_lease(desk: Desk, world: World) -> None:
    ada = await desk.person()
    world.knobs.stuck_pending = "*"
    await ada.start({"mig": "small"})
    await desk.until(ada.pod)
    [before] = (await desk.allocator.leases()).leases
    world.hub.kill()
    world.knobs.stuck_pending = None

    async def runs() -> bool:
        pod = await ada.pod()
        return pod is not None and bool(pod["status"]["phase"] == "Running")

    await desk.until(runs)
    world.start_hub()
    await desk.until(ada.ready, "the server is adopted")
    [after] = (await desk.allocator.leases()).leases
    assert after.lease_id == before.lease_id
    await ada.stop()
    await desk.clean(ada)


async def test_a_start_whose_pod_still_waits_when_the_hub_is_back_leaves_nothing(desk: Desk, world: World) -> None:
    ada = await desk.person()
    world.knobs.stuck_pending = "*"
    await ada.start({"mig": "small"})
    await desk.until(ada.pod)
    world.hub.kill()
    world.start_hub()
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)
    world.knobs.stuck_pending = None
    await desk.clean(ada)


async def test_a_pod_that_was_being_created_when_its_hub_was_killed_is_adopted_or_deleted(
    desk: Desk, world: World
) -> None:
    ada = await desk.person()
    world.knobs.create_delay = 4
    await ada.start({"mig": "small"})
    await desk.until(desk.held)
    [lease] = (await desk.allocator.leases()).leases
    world.hub.kill()
    world.knobs.create_delay = 0
    world.start_hub()

    async def adopted_or_deleted() -> bool:
        pod = await ada.pod()
        if pod is None:
            return not await desk.held()  # which it is until the pod came and went
        return await ada.ready() and pod["metadata"]["labels"]["mig-spawner/lease"] == lease.lease_id

    await desk.until(adopted_or_deleted)
    await ada.stop()
    await desk.clean(ada)


async def test_a_hub_that_is_shut_down_leaves_servers_and_leases(desk: Desk, world: World) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [before] = (await desk.allocator.leases()).leases
    world.hub.kill(signal.SIGTERM)
    world.start_hub()
    assert await ada.ready()
    [after] = (await desk.allocator.leases()).leases
    assert after.lease_id == before.lease_id
    await ada.stop()
    await desk.clean(ada)


@pytest.mark.parametrize("choice", ["small", "none"])
async def test_a_pod_whose_end_a_killed_hub_has_forgotten_is_ended_by_the_next(
    desk: Desk, world: World, choice: str
) -> None:
    ada, bob, eve = [await desk.person(name) for name in ("ada", "bob", "eve")]
    await eve.start({"mig": "none"})
    await desk.until(eve.ready)
    await ada.start({"mig": choice})
    await desk.until(ada.ready)
    world.knobs.delete_failures = 1000
    await ada.stop()
    await desk.until(ada.stopped)
    states = [lease.state for lease in (await desk.allocator.leases()).leases]
    assert states == ([LeaseState.RELEASING] if choice == "small" else [])
    world.hub.kill()
    world.knobs.delete_failures = 0
    assert await ada.pod() is not None, "it runs, and nobody knows"
    world.start_hub()
    async with desk.log_in(bob.name) as browser:
        await browser.get("/hub/home")

    async def gone() -> bool:
        return await ada.pod() is None

    await desk.until(gone, "nobody has it, so it is ended")
    await desk.until(desk.all_free)
    assert await eve.ready()
    assert await eve.pod() is not None, "her server is found again"
    await eve.stop()
    await desk.clean(ada)
