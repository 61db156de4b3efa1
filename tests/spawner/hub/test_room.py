"""The waiting room: what the page of a pending start shows and does, in a browser without scripts, for anybody who may."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from bs4 import BeautifulSoup, Tag

if TYPE_CHECKING:
    from tests.spawner.hub.conftest import Desk, Person

pytestmark = [pytest.mark.hub, pytest.mark.slow]


async def room(browser: httpx.AsyncClient, path: str) -> Tag:
    answer = await browser.get(f"/hub/spawn-pending/{path}")
    assert answer.status_code == 200, answer.text
    [found] = BeautifulSoup(answer.text, "html.parser").select("#mig-room")
    return found


async def press(browser: httpx.AsyncClient, page: Tag, words: str) -> httpx.Response:
    """Press a button of the page."""
    button = next(b for b in page.select("button") if words in " ".join(b.get_text().split()))
    form = button.find_parent("form")
    assert form is not None
    data = {str(i["name"]): str(i["value"]) for i in form.select("input")}
    data |= {str(s["name"]): str(s.select("option")[0]["value"]) for s in form.select("select")}
    if button.has_attr("name"):
        data[str(button["name"])] = str(button["value"])
    return await browser.post(str(form["action"]), data=data, follow_redirects=False)


async def fill_the_gpu(desk: Desk, choice: str) -> Person:
    bob = await desk.person("bob")
    await bob.start({"mig": choice})
    await desk.until(bob.ready)
    return bob


@pytest.mark.parametrize("server", ["", "second"])
@pytest.mark.parametrize("by_admin", [False, True], ids=["by oneself", "by an admin"])
async def test_who_waits_can_leave_the_line(desk: Desk, server: str, by_admin: bool) -> None:
    bob, ada = await fill_the_gpu(desk, "all"), await desk.person()
    await ada.start({"mig": "all"}, server=f"servers/{server}" if server else "server")

    async def waits() -> bool:
        return len((await desk.allocator.leases()).leases) == 2

    await desk.until(waits)
    async with desk.log_in("root" if by_admin else ada.name) as browser:
        page = await room(browser, f"{ada.name}/{server}" if server else ada.name)
        answer = await press(browser, page, "Cancel the start")
        assert answer.status_code == 302
        assert answer.headers["location"] == ("/hub/admin" if by_admin else "/hub/home")

    async def over() -> bool:
        holders = [x.holder.user_name for x in (await desk.allocator.leases()).leases]
        return await ada.server(server) is None and holders == [bob.name]

    await desk.until(over)


async def test_the_room_tells_stages_position_and_what_else_could_be_had(desk: Desk) -> None:
    await fill_the_gpu(desk, "small")
    ada = await desk.person()
    await ada.start({"mig": "all"})
    assert (await ada.waiting()).startswith("Waiting for 7g.80gb: position 1 of 1.")
    async with desk.log_in(ada.name) as browser:

        async def counts_are_there() -> Tag | None:
            page = await room(browser, ada.name)
            return page if page.select("select[name=mig_choice]") else None

        page = await desk.until(counts_are_there)
        assert page is not None
        assert [o["value"] for o in page.select("option")] == ["small", "brief"]
        states = {str(s["data-mig-stage"]): str(s["data-mig-state"]) for s in page.select("[data-mig-stage]")}
        assert states == {"waiting": "now", "held": "next", "node": "next", "image": "next", "open": "next"}
        [now] = page.select("[aria-current=step]")
        assert "position 1 of 1" in now.get_text()
        assert now.select("time")[0]["datetime"]
        assert page.select("[role=status][aria-live=polite]")
        assert not page.select("script"), "no inline script"
        answer = await press(browser, page, "Change to it")
        assert answer.headers["location"] == f"/hub/spawn-pending/{ada.name}"
    await desk.until(ada.ready)
    assert (await ada.environment())["MIG_PROFILE"] == "1g.10gb"
    server = await ada.server()
    assert server is not None
    assert server["user_options"]["mig"] == {"choice": "small"}, "and so it is at the next start"
    assert len((await desk.allocator.leases()).leases) == 2


async def test_who_changes_keeps_the_place_in_line_and_a_no_changes_nothing(desk: Desk) -> None:
    await fill_the_gpu(desk, "all")
    ada, eve = await desk.person(), await desk.person("eve")
    await ada.start({"mig": "all"})
    assert "position 1 of 1" in await ada.waiting()
    await eve.start({"mig": "small"})
    assert "position 2 of 2" in await eve.waiting()

    async def leases() -> dict[str, tuple[str, str]]:
        found = (await desk.allocator.leases()).leases
        return {x.holder.user_name: (x.lease_id, x.asked) for x in found}

    before = await leases()
    async with desk.log_in(ada.name) as browser:
        page = await room(browser, ada.name)
        action, token = str(page.select("form")[0]["action"]), str(page.select("input[name=_xsrf]")[0]["value"])
        change = {"act": "change", "_xsrf": token}
        answer = await browser.post(action, data={**change, "mig_choice": "huge"})
        assert answer.status_code == 400, "no GPU has it"
        assert await leases() == before
        answer = await browser.post(action, data={**change, "mig_choice": "brief"}, follow_redirects=False)
        assert answer.status_code == 302
    assert await leases() == {**before, ada.name: (before[ada.name][0], "1g.10gb")}
    events = await ada.progress(lambda e: "Waiting for 1g.10gb" in e["message"])
    assert "position 1 of 2" in events[-1]["message"]
    assert "position 2 of 2" in await eve.waiting()


async def test_who_waits_can_start_without_a_gpu(desk: Desk) -> None:
    bob, ada = await fill_the_gpu(desk, "all"), await desk.person()
    await ada.start({"mig": "all"})
    await ada.waiting()
    async with desk.log_in(ada.name) as browser:
        await press(browser, await room(browser, ada.name), "Start without a GPU")
    await desk.until(ada.ready)
    assert (await ada.environment())["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert [x.holder.user_name for x in (await desk.allocator.leases()).leases] == [bob.name]


async def test_the_stages_of_a_start_are_on_its_progress(desk: Desk) -> None:
    ada = await desk.person("mute")
    await ada.start({"mig": "small"})
    events = await ada.progress(lambda e: bool(e.get("failed") or e.get("ready")))
    stages = [e["mig"]["stage"] for e in events if "mig" in e]
    assert list(dict.fromkeys(stages)) in (["held", "node", "image", "open"], ["held", "node", "open"])


async def test_nobody_else_touches_a_start(desk: Desk) -> None:
    _, ada, eve = await fill_the_gpu(desk, "all"), await desk.person("ada"), await desk.person("eve")
    await ada.start({"mig": "all"})
    await ada.waiting()
    async with desk.log_in(ada.name) as browser:
        page = await room(browser, ada.name)
        action = str(page.select("form")[0]["action"])
        assert (await browser.post(action, data={"act": "cancel"})).status_code == 403, "not without the XSRF token"
        token = str(page.select("input[name=_xsrf]")[0]["value"])
        for data in ({"act": "dance"}, {"act": "change", "mig_choice": "gone"}):
            answer = await browser.post(action, data={**data, "_xsrf": token}, follow_redirects=False)
            assert answer.status_code == 400
    async with desk.log_in(eve.name) as browser:
        form = BeautifulSoup((await browser.get(f"/hub/spawn/{eve.name}")).text, "html.parser")
        form_action = str(form.select("form#spawn_form")[0]["action"])
        token = parse_qs(urlsplit(form_action).query)["_xsrf"][0]
        answer = await browser.post(action, data={"act": "cancel", "_xsrf": token})
        assert answer.status_code in {403, 404}
    assert len((await desk.allocator.leases()).leases) == 2
