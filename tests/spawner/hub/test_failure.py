"""Starts that fail at each of their stages, and servers that end by themselves: whatever they held is free after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from bs4 import BeautifulSoup

from mig_spawner.wire.lease import LeaseState

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, World

pytestmark = [pytest.mark.hub, pytest.mark.slow]


@pytest.mark.parametrize(("kind", "status"), [("crashing", 500), ("barred", 403)])
async def test_a_hook_that_fails_before_the_pod_gives_the_slice_back(desk: Desk, kind: str, status: int) -> None:
    ada = await desk.person(kind)
    assert (await ada.start({"mig": "small"})).status_code == status
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)
    assert await ada.pod() is None


@pytest.mark.parametrize("kind", ["mute", "proxyless"])
async def test_a_server_that_nobody_can_reach_is_stopped_and_leaves_nothing(desk: Desk, kind: str) -> None:
    ada = await desk.person(kind)
    await ada.start({"mig": "small"})
    await desk.until(ada.stopped)
    await desk.until(desk.all_free)
    assert await ada.pod() is None
    used = (await desk.allocator.usage(user=ada.name)).rows
    assert [(row.leases, row.open) for row in used] == [(1, 0)], "it had a slice"


async def test_cancelled_while_its_pod_is_being_created_it_leaves_nothing(desk: Desk, world: World) -> None:
    ada = await desk.person()
    world.knobs.create_delay = 0.7
    await ada.start({"mig": "small"})
    await desk.until(desk.held)
    assert (await ada.stop()).status_code in {202, 204}
    world.knobs.create_delay = 0.0
    await desk.clean(ada)


async def test_cancelled_while_the_allocator_hangs_it_is_over_at_once_and_leaves_nothing(
    desk: Desk, world: World
) -> None:
    ada = await desk.person()
    world.allocator.freeze()
    try:
        assert (await ada.start({"mig": "small"})).status_code == 202
        answer = await ada.stop()
        assert answer.status_code in {202, 204}, answer.text
    finally:
        world.allocator.thaw()
    await desk.clean(ada)


async def test_cancelled_by_a_hub_that_is_too_busy_to_notice_it_is_stopped_all_the_same(desk: Desk) -> None:
    ada, bob = await desk.person("lagging"), await desk.person("bob")
    await bob.start({"mig": "all"})
    await desk.until(bob.ready)
    await ada.start({"mig": "all"})
    await ada.waiting()
    assert (await ada.stop()).status_code == 500, "this is what the hub makes of it"
    await desk.until(ada.stopped)
    assert [x.holder.user_name for x in (await desk.allocator.leases()).leases] == [bob.name]
    await bob.stop()
    await desk.clean(ada)


async def test_a_process_that_ends_gives_its_slice_back(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    await ada.environment("/exit/0")
    await desk.clean(ada)


async def test_a_process_that_crashes_is_started_again_in_its_pod_and_keeps_its_slice(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [before], pod = (await desk.allocator.leases()).leases, await ada.pod()
    assert pod is not None
    await ada.environment("/exit/137")

    async def restarted() -> bool:
        now = await ada.pod()
        assert now is not None
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        [status] = now["status"]["containerStatuses"]
        return bool(status["restartCount"] == 1 and status["state"].get("running"))

    await desk.until(restarted)
    [after] = (await desk.allocator.leases()).leases
    assert (after.lease_id, after.device_uuid) == (before.lease_id, before.device_uuid)
    assert after.open
    assert await ada.ready()


async def test_a_pod_that_will_not_go_keeps_its_slice_where_all_can_see_it(desk: Desk, world: World) -> None:
    ada = await desk.person("short")
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    world.knobs.stuck_terminating = "*"
    await ada.stop()
    await desk.until(ada.stopped, "the hub gives up on the pod")
    [lease] = (await desk.allocator.leases()).leases
    assert (lease.state, lease.reason) == (LeaseState.RELEASING, "stopped")
    assert "pod" in lease.detail
    assert await desk.free() == 6
    world.knobs.stuck_terminating = None
    await desk.until(desk.all_free)
    assert await ada.pod() is None


async def test_a_cluster_that_is_away_costs_a_start_and_no_running_server(desk: Desk, world: World) -> None:
    ada, bob = await desk.person("ada"), await desk.person("bob")
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [kept] = (await desk.allocator.leases()).leases
    world.knobs.api_down = True
    await bob.start({"mig": "small"})
    await desk.until(bob.stopped, "a pod that cannot be created is given up")
    world.knobs.api_down = False

    async def only_hers() -> bool:
        return [x.lease_id for x in (await desk.allocator.leases()).leases] == [kept.lease_id]

    await desk.until(only_hers)
    assert await ada.ready()
    assert await ada.pod() is not None
    await ada.stop()
    await desk.clean(bob)


async def test_a_pod_of_the_same_name_in_the_way_costs_no_lease(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "none"})
    await desk.until(ada.ready)
    stray = await ada.pod()
    assert stray is not None
    await ada.stop()
    await desk.until(ada.stopped)
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        stray["metadata"].pop(key)
    stray["spec"].pop("nodeName")
    stray.pop("status")
    (await desk.kube.post("pods", json=stray)).raise_for_status()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [lease] = (await desk.allocator.leases()).leases
    pod = await ada.pod()
    assert pod is not None
    assert pod["metadata"]["labels"]["mig-spawner/lease"] == lease.lease_id
    assert (await ada.environment())["NVIDIA_VISIBLE_DEVICES"] == lease.device_uuid


async def test_two_clicks_are_one_server_with_one_lease(desk: Desk) -> None:
    ada = await desk.person()
    answers = await asyncio.gather(*(ada.start({"mig": "small"}) for _ in range(3)))
    assert any(a.is_success for a in answers)
    await desk.until(ada.ready)
    [lease] = (await desk.allocator.leases()).leases
    assert (await ada.environment())["MIG_LEASE_ID"] == lease.lease_id
    await ada.stop()
    await desk.clean(ada)


async def test_refusals_never_end_the_hub(desk: Desk, world: World) -> None:
    ada, bob, crashing = [await desk.person(kind) for kind in ("ada", "bob", "crashing")]
    for _ in range(6):  # one more than the failures that end a hub
        assert (await ada.start({"mig": "gone"})).status_code == 400
        assert (await ada.start({"mig": "huge"})).status_code == 422
    assert (await crashing.start({"mig": "none"})).status_code == 500, "one real failure, after all of these"
    await desk.clean(bob)
    assert world.hub.process is not None
    assert world.hub.process.poll() is None


async def test_a_saved_choice_that_is_no_more_is_explained_and_traps_nobody(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "gone"})
    again = await ada.start()
    assert again.status_code == 400
    assert "not on the menu" in again.json()["message"]
    async with desk.log_in(ada.name) as browser:
        form = BeautifulSoup((await browser.get(f"/hub/spawn/{ada.name}")).text, "html.parser")
        assert "no longer on the menu" in form.select(".mig-stale")[0].get_text()
        [checked] = form.select("input[name=mig_choice]:checked")
        data = {"mig_choice": str(checked["value"])}
        await browser.post(str(form.select("form#spawn_form")[0]["action"]), data=data, follow_redirects=False)
    await desk.until(ada.ready)
    await ada.stop()
    await desk.clean(ada)


async def test_a_named_server_has_the_form_too_and_its_errors(desk: Desk) -> None:
    ada = await desk.person()
    async with desk.log_in(ada.name) as browser:
        page = BeautifulSoup((await browser.get(f"/hub/spawn/{ada.name}/second")).text, "html.parser")
        action = str(page.select("form#spawn_form")[0]["action"])
        refused = await browser.post(action, data={"mig_choice": "gone"})
        assert refused.status_code == 400
        again = BeautifulSoup(refused.text, "html.parser")
        assert "not on the menu" in again.select(".spawn-error-msg")[0].get_text()
        await browser.post(action, data={"mig_choice": "small"}, follow_redirects=False)

    async def ready() -> bool:
        return bool((await ada.server("second") or {}).get("ready"))

    await desk.until(ready)
    assert [x.holder.server_name for x in (await desk.allocator.leases()).leases] == ["second"]
