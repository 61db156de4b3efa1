"""The spawn form in a real browser: with JavaScript, without, by keyboard alone, and with hostile texts."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.spawner.screen.conftest import Seats

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]


async def test_the_form_says_what_is_free_and_that_the_gpus_are_simulated(seats: Seats) -> None:
    ada = await seats.take()
    await ada.form()
    form = ada.page.locator("#mig-choices")
    await expect(form).to_contain_text("Simulated GPUs")
    small = form.locator(".mig-choice", has_text="Small slice")
    await expect(small).to_contain_text("10 GB")
    await expect(small).to_contain_text("12.5 % of a GPU")
    await expect(small).to_contain_text("free now 7 of 7")
    await expect(form.get_by_label("CPU only")).to_be_checked()


async def test_live_counts_follow_what_others_take_and_leave_focus_and_choice_alone(seats: Seats) -> None:
    ada = await seats.take()
    await ada.form()
    choice = ada.page.get_by_label("Small slice")
    await choice.check()
    await choice.focus()
    badge = ada.page.locator("#mig-free-medium")
    await expect(badge).to_have_text("free now 3 of 3")
    bob = await seats.hold("medium")
    await expect(badge).to_have_text("free now 2 of 3")
    await bob.stop()
    await expect(badge).to_have_text("free now 3 of 3")
    await expect(choice).to_be_focused()
    await expect(choice).to_be_checked()


async def test_a_choice_that_nothing_can_serve_is_disabled_and_says_why(seats: Seats) -> None:
    ada = await seats.take()
    await ada.form()
    choice = ada.page.get_by_label("Huge slice")
    await expect(choice).to_be_disabled()
    described = (await choice.get_attribute("aria-describedby") or "").split()
    said = [await ada.page.locator(f"#{part}").inner_text() for part in described]
    assert "No GPU" in " ".join(said)


async def test_html_in_a_display_name_is_shown_as_text(seats: Seats) -> None:
    ada = await seats.take()
    await ada.form()
    label = ada.page.locator("label[for=mig-choice-evil]")
    await expect(label).to_have_text("<b>Bold</b><script>document.title = 'stolen'</script>")
    assert await label.locator("b, script").count() == 0
    assert await ada.page.title() != "stolen"


async def test_the_form_is_usable_by_keyboard_alone(seats: Seats) -> None:
    ada = await seats.take()
    await ada.form()
    await _tab_to(ada.page, "input[name=mig_choice]")
    await ada.page.keyboard.press("ArrowDown")
    await expect(ada.page.get_by_label("Small slice")).to_be_checked()
    await _tab_to(ada.page, "#spawn_form [type=submit]")
    await ada.page.keyboard.press("Enter")
    await ada.page.wait_for_url(lambda url: "/hub/spawn/" not in url)
    assert await ada.chosen() == "small"


async def test_without_javascript_the_form_shows_counts_and_starts(seats: Seats) -> None:
    ada = await seats.take(javascript=False)
    await ada.form()
    form = ada.page.locator("#mig-choices")
    await expect(form).to_contain_text("Counts as of when this page was loaded")
    await expect(form.locator(".mig-choice", has_text="Small slice")).to_contain_text("free now")
    await ada.page.get_by_label("Small slice").check()
    await ada.page.click("#spawn_form [type=submit]")
    await ada.page.wait_for_url(lambda url: "/hub/spawn/" not in url)
    assert await ada.chosen() == "small"


async def _tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is on what the selector finds."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate("s => document.activeElement.matches(s)", selector):
            return
    pytest.fail(f"the keyboard never reaches {selector}")
