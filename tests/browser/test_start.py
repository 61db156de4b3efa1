"""From the form to JupyterLab, and what one sees while one waits."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.desk import Desks

pytestmark = [pytest.mark.browser, pytest.mark.slow]


async def test_a_chosen_slice_ends_in_jupyterlab_that_holds_it(desks: Desks) -> None:
    desk = await desks.open()
    await desk.open_form()
    await desk.page.get_by_label("Small slice").check()
    await desk.submit()
    await desk.page.wait_for_url("**/lab**", timeout=90_000)
    await expect(desk.page.locator("#jp-main-dock-panel")).to_be_visible(timeout=60_000)
    kernel = await desk.person.kernel()
    seen = await kernel.run("import os; print(os.environ['MIG_PROFILE'], os.environ['NVIDIA_VISIBLE_DEVICES'])")
    profile, device = seen.split()
    assert profile == "1g.10gb"
    assert device.startswith("MIG-")


async def test_who_waits_sees_the_position_and_starts_when_it_is_their_turn(desks: Desks) -> None:
    first = await desks.person()
    await first.start({"mig_choice": "whole"})
    await first.see("pod")  # it holds the GPU now
    desk = await desks.open()
    await desk.open_form()
    choice = desk.page.locator(".mig-choice", has_text="Whole GPU")
    await expect(choice).to_contain_text("None free now")
    await desk.page.get_by_label("Whole GPU").check()
    await desk.submit()
    await expect(desk.page.locator("#progress-message")).to_contain_text("position 1", timeout=30_000)
    await first.stop()
    await desk.person.see("pod")
