"""From the hub's API to a process that has exactly its slice, and back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup

from mig_spawner.wire.lease import LeaseState

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, World

pytestmark = [pytest.mark.hub, pytest.mark.slow]


async def test_a_server_has_exactly_its_slice_and_gives_it_back(desk: Desk) -> None:
    ada = await desk.person()
    assert (await ada.start({"mig": "1g.10gb"})).status_code in {201, 202}
    await desk.until(ada.ready)
    [lease] = (await desk.allocator.leases()).leases
    assert lease.holder.user_name == ada.name
    assert lease.device_uuid is not None
    pod = await ada.pod()
    assert pod is not None
    assert pod["metadata"]["labels"]["mig-spawner/lease"] == lease.lease_id
    assert pod["metadata"]["annotations"]["mig-spawner/device-uuid"] == lease.device_uuid
    assert pod["spec"]["runtimeClassName"] == "nvidia"
    assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"] == "gpu-a"
    assert int(pod["spec"]["containers"][0]["resources"]["limits"]["memory"]) == 512 << 20
    env = await ada.environment()
    assert env["NVIDIA_VISIBLE_DEVICES"] == env["MIG_DEVICE_UUID"] == lease.device_uuid
    assert (env["MIG_PROFILE"], env["MIG_LEASE_ID"]) == ("1g.10gb", lease.lease_id)
    assert int(env["GPU_MEM_LIMIT"]) == lease.memory_bytes

    async def active() -> bool:
        return (await desk.allocator.lease(lease.lease_id)).state is LeaseState.ACTIVE

    await desk.until(active, "the lease is taken")
    await ada.stop()
    await desk.until(desk.all_free)
    assert await desk.was_stopped(lease.lease_id)


async def test_two_servers_of_one_person_have_two_slices(desk: Desk) -> None:
    ada = await desk.person()
    await asyncio.gather(ada.start({"mig": "small"}), ada.start({"mig": "small"}, server="servers/second"))

    async def both() -> bool:
        first, second = await ada.server(), await ada.server("second")
        return bool(first and first["ready"] and second and second["ready"])

    await desk.until(both)
    leases = (await desk.allocator.leases()).leases
    assert {lease.holder.server_name for lease in leases} == {"", "second"}
    assert len({lease.device_uuid for lease in leases}) == 2
    await ada.stop("servers/second")

    async def one() -> bool:
        return [lease.holder.server_name for lease in (await desk.allocator.leases()).leases] == [""]

    await desk.until(one)


async def test_a_server_without_a_gpu_sees_none_and_has_no_lease(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start()
    await desk.until(ada.ready)
    assert (await ada.environment())["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (await desk.allocator.leases()).leases == ()


@pytest.mark.parametrize(
    "options",
    [
        {"mig": "7g.999gb"},
        {"mig": "gone"},
        {"mig": ["small"]},
        {"mig": {"choice": {"choice": "small"}}},
        {"mig": {"profile": "1c.2g.20gb"}},
        {"mig": "x" * 5000},
    ],
    ids=lambda options: str(options)[:40],
)
async def test_bad_options_are_a_400_with_a_sentence_and_the_next_try_works(desk: Desk, options: Any) -> None:
    ada = await desk.person()
    answer = await ada.start(options)
    assert answer.status_code == 400
    assert len(answer.json()["message"]) > 20
    assert (await desk.allocator.leases()).leases == ()
    assert (await ada.start({"mig": None})).status_code in {201, 202}
    await desk.until(ada.ready)


async def test_a_profile_that_no_gpu_has_is_refused_at_once(desk: Desk) -> None:
    ada = await desk.person()
    answer = await ada.start({"mig": "huge"})
    assert answer.status_code == 422
    assert "7g.141gb" in answer.json()["message"]
    assert await ada.pod() is None


async def test_the_form_in_the_hub(desk: Desk, world: World) -> None:
    person = await desk.person("ü" * 60)
    async with desk.log_in(person.name) as browser:
        answer = await browser.get("/hub/spawn")
        form = BeautifulSoup(answer.text, "html.parser")
        assert "free now 7 of 7" in form.select(".mig-choice")[1].get_text(" ", strip=True)
        assert form.select("label[for=mig-choice-huge]")[0].get_text() == "<b>Huge</b>"
        assert form.select("#mig-choice-huge")[0].has_attr("disabled")
        fieldset = form.select("fieldset")[0]
        counts = await browser.get(
            f"{world.allocator_url}/api/v1/availability",
            headers={"Authorization": f"Bearer {fieldset['data-mig-ticket']}"},
        )
        assert counts.status_code == 200
        script = await browser.get(f"{world.allocator_url}/static/live.js")
        assert "mig-choices" in script.text
        action = str(form.select("form#spawn_form")[0]["action"])
        refused = await browser.post(action, data={"mig_choice": "gone"})
        assert refused.status_code == 400
        again = BeautifulSoup(refused.text, "html.parser")
        assert "not on the menu" in again.select(".spawn-error-msg")[0].get_text()
        assert again.select("input[name=mig_choice]")
        linked = await browser.get("/hub/spawn?opt-mig=small")
        assert linked.status_code == 400
        offered = BeautifulSoup(linked.text, "html.parser")
        assert offered.select("#mig-choice-small")[0].has_attr("checked")
        assert "not started by a link alone" in offered.select(".spawn-error-msg")[0].get_text()
        assert (await desk.allocator.leases()).leases == ()
        started = await browser.post(action, data={"mig_choice": "small"}, follow_redirects=False)
        assert started.status_code == 302
        assert "/hub/spawn-pending/" in started.headers["location"]
    await desk.until(person.ready)
    assert [x.holder.user_name for x in (await desk.allocator.leases()).leases] == [person.name]
