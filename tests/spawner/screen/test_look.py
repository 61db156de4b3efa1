"""Pages of the hub that have something of ours: what axe finds wrong, light and dark, and whether they fit a small screen."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.async_api import Page, ViewportSize, expect

from tests.browser.look import Fault, faults
from tests.spawner.screen.conftest import Seats
from tests.spawner.screen.town import Town

pytestmark = [pytest.mark.browser, pytest.mark.hub, pytest.mark.slow]

WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 320, "height": 640}
"""As a small screen, and as one of 1280 at 400 %."""
OF_THE_HUB: Final = {
    Fault("color-contrast", ".btn-jupyter"): "white on JupyterHub's orange",
    Fault("landmark-one-main", "html"): "JupyterHub's templates have no <main>",
    Fault(
        "region", ".text-center"
    ): "the heading of JupyterHub's form, and its page of a failed start, stand outside of any",
}
"""What axe finds on the pages of JupyterHub 5.5 and 6.1 without anything of ours, and why. Each time it is asked that it is theirs."""


async def looked_at(page: Page) -> None:
    """Only what is the hub's is wrong, wide and narrow, and nothing is cut off."""
    await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    for window in (NARROW, WIDE):
        await page.set_viewport_size(window)
        assert await page.evaluate("document.documentElement.scrollWidth") <= window["width"]
        found = await faults(page)
        if not found:
            continue
        assert found <= set(OF_THE_HUB)
        await page.evaluate("document.getElementById('mig-choices')?.remove()")
        assert await faults(page) == found, "the hub has the same without ours"
        await page.reload()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_that_is_ours(seats: Seats, scheme: str) -> None:
    ada = await seats.take(color_scheme=scheme)
    page = ada.page
    await ada.form()
    await expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
    await looked_at(page)

    await seats.hold("small")
    await ada.form()
    await expect(page.locator(".mig-instead:visible").first).to_contain_text("Free now instead")
    await looked_at(page)

    await page.get_by_label("All slices", exact=True).check()
    await ada.submit()
    await expect(page.get_by_role("button", name="Take Small slice now")).to_be_visible()
    await looked_at(page)

    hasty = await seats.take("hasty", color_scheme=scheme)
    await hasty.start("all")
    await expect(hasty.page.get_by_role("heading", name="Your server did not start")).to_be_visible()
    await looked_at(hasty.page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_while_the_allocator_is_away(seats: Seats, town: Town, scheme: str) -> None:
    ada = await seats.take(color_scheme=scheme)
    town.world.allocator.kill()
    try:
        await ada.form()
        await expect(ada.page.locator(".mig-notice")).to_contain_text("does not answer")
        await looked_at(ada.page)
    finally:
        town.world.start_allocator()
