"""Form, waiting room and the allocator's pages in a browser, behind a proxy: below a path other than `/`, and with subdomains."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.look import violations
from tests.spawner.hub.conftest import Desk
from tests.spawner.place.town import Town

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]


async def log_in(browser: Browser, town: Town, name: str, scheme: str) -> Page:
    context = await browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    page = await context.new_page()
    page.set_default_timeout(30_000)
    await page.goto(f"{town.hub}/hub/login")
    await page.fill("input[name=username]", name)
    await page.fill("input[name=password]", "x")
    await page.click("[type=submit]")
    await page.wait_for_url(lambda url: "/hub/login" not in url)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_from_the_form_through_the_waiting_room_to_the_pages_and_back(
    town: Town, desk: Desk, browser: Browser, scheme: str
) -> None:
    bob, ada = await desk.person("bob"), await desk.person()
    await bob.start({"mig": "small"})
    await desk.until(bob.ready)
    page = await log_in(browser, town, ada.name, scheme)
    await page.goto(f"{town.hub}/hub/spawn/{ada.name}")
    await expect(page.get_by_text("Counts are live.")).to_be_visible(timeout=30_000)
    await expect(page.locator(".mig-summary")).to_have_text("Your server starts without a GPU.")
    assert await violations(page, "#mig-choices") == []
    await page.get_by_label("All slices", exact=True).check()
    await page.click("#spawn_form [type=submit]")
    await expect(page.locator("#progress-message")).to_contain_text("position 1", timeout=30_000)
    assert page.url.startswith(f"{town.hub}/hub/spawn-pending/")
    assert await violations(page, "#mig-room") == []

    # The OAuth round trip, and an act on a page that it leads to.
    await page.goto(f"{town.pages}/")
    await expect(page.get_by_role("heading", level=1)).to_have_text("My slices")
    await expect(page.locator(".who")).to_contain_text(ada.name)
    assert page.url == f"{town.pages}/"
    assert await violations(page) == []
    await page.get_by_role("link", name="Leave the line").click()
    await page.get_by_role("button", name="Leave the line").click()
    await expect(page.get_by_role("status")).to_contain_text("given back")
    await page.get_by_role("link", name="JupyterHub").click()
    await page.wait_for_url(f"{town.hub}/hub/**")
    await desk.until(ada.stopped, "who has left the line is not started")
