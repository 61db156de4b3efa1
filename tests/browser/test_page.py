"""The allocator's pages in a real browser: no violation that axe knows of, light and dark, small and large, with and without scripts."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.browser.look import violations
from tests.page.site import Site, furnish

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = ["", "admin/map", "admin/map?node=n2", "admin/map?node=nothing"]
FULL_HD = {"width": 1280, "height": 800}
NARROW = {"width": 320, "height": 640}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(site: Site, browser: Browser, scheme: str) -> None:
    await furnish(site)
    page = await site.page(browser, color_scheme=scheme, viewport=FULL_HD)
    found = {}
    for path in PAGES:
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == 200
        await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        found[path] = await violations(page)
    assert found == {path: [] for path in PAGES}
    assert all(url.startswith(site.rig.app.url.removesuffix("/services/mig/")) for url in site.requested)


async def test_nothing_is_wider_than_a_small_screen_or_a_page_at_200_percent(site: Site, browser: Browser) -> None:
    await furnish(site)
    page = await site.page(browser, viewport=NARROW)
    for path in PAGES:
        await page.goto(path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path


@pytest.mark.parametrize(("locale", "written"), [("de-DE", "01.03.2026"), ("es-ES", "1 mar 2026")])
async def test_times_and_numbers_are_written_as_the_reader_does(
    site: Site, browser: Browser, locale: str, written: str
) -> None:
    await furnish(site)
    page = await site.page(browser, locale=locale, timezone_id="UTC")
    await page.goto("admin/map")
    assert written in await page.locator("time.moment").first.inner_text()
    await page.goto("")
    assert "25,0" in await page.locator("data.number").nth(1).inner_text()


async def test_the_theme_of_the_hub_is_followed(site: Site, browser: Browser) -> None:
    page = await site.page(browser, color_scheme="light")
    await page.goto("")
    await page.evaluate("localStorage.setItem('jupyterhub-bs-theme', 'dark')")
    await page.reload()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(33, 37, 41)"
