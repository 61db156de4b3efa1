"""The waiting room while its script runs, and without: what changes before one's eyes, and what one can do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from tests.spawner.screen.conftest import Seats
from tests.spawner.screen.town import Town

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

SERVER = re.compile(r"/user/")


def message(page: Page) -> Any:
    return expect(page.locator("#progress-message"))


def stage(page: Page, name: str) -> Any:
    return expect(page.locator(f"[data-mig-stage={name}]"))


async def never_reloaded(page: Page) -> bool:
    """The page is the one on which this was asked the first time."""
    return bool(await page.evaluate("(window.before ??= 0, window.before++ > 0)"))


async def test_who_waits_sees_the_position_change_and_the_server_open(seats: Seats) -> None:
    bob, eve = await seats.hold("all"), await seats.desk.person("eve")
    await eve.start({"mig": "all"})
    await eve.waiting()
    ada = await seats.take()
    await ada.start("whole")
    page = ada.page
    await message(page).to_contain_text("position 2 of 2")
    await never_reloaded(page)
    said = page.locator("#progress-message")
    assert (await said.get_attribute("role"), await said.get_attribute("aria-live")) == ("status", "polite")
    await stage(page, "waiting").to_have_attribute("aria-current", "step")
    await eve.stop()
    await message(page).to_contain_text("position 1 of 1")
    assert await never_reloaded(page)
    await bob.stop()
    await page.wait_for_url(SERVER)
    await expect(page).to_have_title("A notebook")


async def test_stages_go_by_and_a_start_that_fails_says_where_and_leads_back(seats: Seats) -> None:
    bob, ada = await seats.hold("all"), await seats.take("mute")
    await ada.start("whole")
    page = ada.page
    offers, cancel = page.locator("#mig-offers"), page.get_by_role("button", name="Cancel the start")
    await expect(offers).to_contain_text("Another size")
    await bob.stop()
    await stage(page, "waiting").to_have_attribute("data-mig-state", "done")
    await stage(page, "waiting").to_contain_text("position 1 of 1")
    await expect(offers).to_be_hidden()
    await expect(cancel).to_be_visible()
    await expect(page.get_by_role("heading", name="Your server did not start")).to_be_visible()
    await expect(page.get_by_role("heading", name="Your server is starting")).to_be_hidden()
    await stage(page, "open").to_contain_text("failed here")
    await expect(page.locator("[aria-current]")).to_have_count(0)
    await expect(cancel).to_be_hidden()
    await page.get_by_role("link", name="Choose again").click()
    await page.wait_for_url("**/hub/spawn/**")
    await expect(page.get_by_label("Whole GPU", exact=True)).to_be_checked()


async def test_another_size_is_asked_for_without_losing_the_place(seats: Seats) -> None:
    await seats.hold("all")
    ada = await seats.take()
    await ada.start("whole")
    await message(ada.page).to_contain_text("position 1 of 1")
    await ada.page.get_by_label("Another size").select_option("medium")
    await ada.page.get_by_role("button", name="Change to it").click()
    await message(ada.page).to_contain_text("Waiting for 2g.20gb: position 1 of 1.")
    assert ada.page.url.endswith(f"/hub/spawn-pending/{ada.person.name}")
    assert await ada.chosen() == "medium"


async def test_what_becomes_free_is_offered_and_leaves_focus_and_choice_alone(seats: Seats) -> None:
    bob, _, ada = await seats.hold("large"), await seats.hold("evil"), await seats.take()
    await ada.start("all")
    page = ada.page
    sizes = page.get_by_label("Another size")
    await sizes.select_option("medium")
    await sizes.focus()
    await never_reloaded(page)
    await expect(page.get_by_role("button", name="Take")).to_have_count(0)
    await bob.stop()
    offered = page.get_by_role("button", name="Take Small slice now")
    await expect(offered).to_be_visible()
    await expect(sizes).to_be_focused()
    await expect(sizes).to_have_value("medium")
    assert await never_reloaded(page)
    await offered.click()
    await page.wait_for_url(SERVER)
    assert await ada.chosen() == "small"


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without"])
async def test_who_leaves_the_line_is_at_home(seats: Seats, javascript: bool) -> None:
    await seats.hold("all")
    ada = await seats.take(javascript=javascript)
    await ada.start("all")
    await ada.page.get_by_role("button", name="Cancel the start").click()
    await ada.page.wait_for_url("**/hub/home")
    await seats.desk.until(ada.person.stopped, "the start is cancelled")


async def test_without_scripts_the_page_follows_by_itself(seats: Seats) -> None:
    await seats.hold("all")
    ada = await seats.take(javascript=False)
    await ada.start("all")
    page = ada.page
    await message(page).to_contain_text("position 1 of 1")
    await expect(page.get_by_label("Another size")).to_be_visible()
    await page.get_by_role("button", name="Start without a GPU").click()
    await page.wait_for_url(SERVER)
    assert await ada.chosen() == "none"


async def test_an_allocator_that_is_away_is_told_of_and_nobody_loses_the_place(town: Town, seats: Seats) -> None:
    await seats.hold("all")
    ada = await seats.take()
    await ada.start("all")
    await message(ada.page).to_contain_text("position 1 of 1")
    town.world.allocator.kill()
    await message(ada.page).to_have_text("The GPU allocator does not answer, still waiting.")
    await stage(ada.page, "waiting").to_have_attribute("data-mig-state", "now")
    town.world.start_allocator()
    await message(ada.page).to_contain_text("position 1 of 1")


async def test_a_page_that_was_cut_off_comes_back_without_saying_everything_twice(town: Town, seats: Seats) -> None:
    await seats.hold("all")
    ada = await seats.take()
    await ada.start("all")
    page = ada.page
    await message(page).to_contain_text("position 1 of 1")
    await never_reloaded(page)
    town.front.break_off()
    try:
        await message(page).to_have_text("The hub does not answer; trying again.")
    finally:
        town.front.away = False
    await message(page).to_contain_text("position 1 of 1")
    assert await never_reloaded(page)
    log = await page.locator("#progress-log li").all_text_contents()
    assert log.count("Server requested") == 1


async def test_a_page_to_which_nothing_is_told_loads_itself_again(seats: Seats) -> None:
    await seats.hold("all")
    ada = await seats.take()
    refused = 0

    async def refuse_once(route: Route) -> None:
        nonlocal refused
        refused += 1
        await (route.fulfill(status=503) if refused == 1 else route.continue_())

    await ada.page.route(re.compile("/progress"), refuse_once)
    await ada.start("all")
    await stage(ada.page, "waiting").to_have_attribute("data-mig-state", "now")
    await message(ada.page).to_contain_text("position 1 of 1")
    await expect(ada.page.locator("#progress-log li").first).to_have_text("Server requested")
    assert refused == 2


async def test_nothing_moves_where_less_motion_is_wanted(seats: Seats) -> None:
    await seats.hold("all")
    ada = await seats.take()
    await ada.start("all")
    await message(ada.page).to_contain_text("position 1 of 1")
    assert await ada.page.evaluate("document.getAnimations().length") == 0
    await expect(ada.page.locator("#mig-bar")).not_to_have_js_property("position", -1)  # -1: it runs to and fro
