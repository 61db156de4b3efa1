"""Waiting in line: positions, giving up, and outages in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jupyterhub
import pytest

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, World

pytestmark = [pytest.mark.hub, pytest.mark.slow]


async def test_who_waits_sees_a_position_and_who_gives_up_makes_room(desk: Desk) -> None:
    ada, bob, eve = await desk.person("ada"), await desk.person("bob"), await desk.person("eve")
    await ada.start({"mig": "all"})
    await desk.until(ada.ready)
    assert (await bob.start({"mig": "all"})).status_code == 202
    assert (await bob.waiting()).startswith("Waiting for 7g.80gb: position 1 of 1.")
    assert (await eve.start({"mig": "all"})).status_code == 202
    assert (await eve.waiting()).startswith("Waiting for 7g.80gb: position 2 of 2.")
    assert (await bob.stop()).status_code in {202, 204}
    await desk.until(bob.stopped)
    holders = {lease.holder.user_name for lease in (await desk.allocator.leases()).leases}
    assert holders == {ada.name, eve.name}
    await ada.stop()
    await desk.until(eve.ready)
    device = (await eve.environment())["NVIDIA_VISIBLE_DEVICES"]
    assert [lease.device_uuid for lease in (await desk.allocator.leases()).leases] == [device]


async def test_waiting_may_take_longer_than_a_start(desk: Desk) -> None:
    ada, bob = await desk.person("ada"), await desk.person("short")
    await ada.start({"mig": "all"})
    await desk.until(ada.ready)
    await bob.start({"mig": "all"})
    waited = 0.0

    async def longer_than_its_start_timeout() -> bool:
        nonlocal waited
        server = await bob.server()
        assert server is not None
        assert server["pending"] == "spawn"
        waited += 0.05
        return waited > 7

    await desk.until(longer_than_its_start_timeout)
    await ada.stop()
    await desk.until(bob.ready)


async def test_nothing_free_in_time_is_a_sentence(desk: Desk, world: World) -> None:
    ada, bob = await desk.person("ada"), await desk.person("hasty")
    await ada.start({"mig": "all"})
    await desk.until(ada.ready)
    answer = await bob.start({"mig": "all"})
    assert answer.status_code == 202
    message = await bob.failure()
    assert "Nothing became free for 7g.80gb within 4 seconds" in message
    assert len((await desk.allocator.leases()).leases) == 1
    if jupyterhub.version_info < (6,):
        return  # its metric has no reasons
    metrics = (await desk.hub.get(f"{world.hub_url}/hub/metrics")).text
    assert 'reason="mig-queue-timeout"' in metrics


async def test_the_wait_survives_the_death_of_the_allocator(desk: Desk, world: World) -> None:
    ada, bob = await desk.person("ada"), await desk.person("bob")
    await ada.start({"mig": "all"})
    await desk.until(ada.ready)
    await bob.start({"mig": "all"})
    await bob.waiting()
    world.allocator.kill()
    events = await bob.progress(lambda e: "does not answer" in e["message"] or bool(e.get("failed")))
    assert events[-1]["message"] == "The GPU allocator does not answer, still waiting."
    assert await ada.ready()
    world.start_allocator()
    await ada.stop()
    await desk.until(bob.ready)
