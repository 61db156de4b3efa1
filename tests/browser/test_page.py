"""The allocator's pages in a real browser: no violation that axe knows of, light and dark, small and large, with and without scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.reshape import ReshapeDocument
from tests.allocator.reshape.test_reshape import Agent
from tests.browser.look import violations
from tests.page.site import Site, furnish

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OWN = [
    "",
    "history",
    "leases/{active}",
    "leases/{active}/extend",
    "leases/{ready}/extend",
    "leases/{active}/release",
    "leases/none",
]
ADMIN = [
    *("admin/map", "admin/map?node=n2", "admin/map?node=nothing"),
    *("admin/leases", "admin/leases?text=nothing", "leases/{queued}", "admin/leases/{active}/end", "admin/queue"),
    *("admin/nodes", "admin/nodes/n1", "admin/nodes/n2", "admin/nodes/n1/cordon", "admin/nodes/n1/drain"),
    *("admin/quotas", "admin/quotas?user=ann", "admin/usage", "admin/usage?by=profile"),
    *("admin/layouts", "admin/menu", "admin/menu?user=ann", "admin/audit", "admin/audit?text=ann"),
]
FULL_HD: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 320, "height": 640}


async def _walk(page: Page, paths: list[str], leases: dict[str, LeaseDocument]) -> AsyncIterator[str]:
    """Open each of these pages, with everything that can be unfolded unfolded."""
    for path in paths:
        await page.goto(path.format(**{name: lease.lease_id for name, lease in leases.items()}))
        await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        yield path


def _errors(page: Page) -> list[str]:
    """What the browser has to complain of, from now on."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    return said


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(site: Site, browser: Browser, scheme: str) -> None:
    leases = await furnish(site)
    found = {}
    for who, paths in (("ann", OWN), ("root", ADMIN)):
        page = await site.page(browser, who, color_scheme=scheme, viewport=FULL_HD)
        errors = _errors(page)
        async for path in _walk(page, paths, leases):
            found[path] = await violations(page)
        assert [text for text in errors if "404" not in text] == [], "the policy forbids nothing that the page needs"
    assert found == {path: [] for path in [*OWN, *ADMIN]}
    assert all(url.startswith(site.rig.app.url.removesuffix("/services/mig/")) for url in site.requested)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_in_proposals(
    scene: tuple[Site, Agent, ReshapeDocument], browser: Browser, scheme: str
) -> None:
    running, _, proposal = scene
    page = await running.page(browser, color_scheme=scheme, viewport=FULL_HD)
    for path in ("", f"/{proposal.reshape_id}/approve", f"/{proposal.reshape_id}/reject"):
        await page.goto(f"admin/layouts{path}")
        assert await violations(page) == []
        await page.set_viewport_size(NARROW)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        await page.set_viewport_size(FULL_HD)


async def test_nothing_is_wider_than_a_small_screen_or_a_page_at_200_percent(site: Site, browser: Browser) -> None:
    leases = await furnish(site)
    wide = {}
    for who, paths in (("ann", OWN), ("root", ADMIN)):
        page = await site.page(browser, who, viewport=NARROW)
        async for path in _walk(page, paths, leases):
            wide[path] = await page.evaluate("document.documentElement.scrollWidth")
    assert {path: width for path, width in wide.items() if width > 320} == {}


@pytest.mark.parametrize(("locale", "written"), [("de-DE", "01.03.2026"), ("es-ES", "1 mar 2026")])
async def test_times_and_numbers_are_written_as_the_reader_does(
    site: Site, browser: Browser, locale: str, written: str
) -> None:
    await furnish(site)
    page = await site.page(browser, locale=locale, timezone_id="UTC")
    await page.goto("admin/map")
    assert written in await page.locator("time.moment").first.inner_text()
    await page.goto("")
    await expect(page.locator("data.number", has_text="12,5").first).to_be_visible()


async def test_the_theme_of_the_hub_is_followed(site: Site, browser: Browser) -> None:
    page = await site.page(browser, color_scheme="light")
    await page.goto("")
    await page.evaluate("localStorage.setItem('jupyterhub-bs-theme', 'dark')")
    await page.reload()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(33, 37, 41)"


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without"])
async def test_a_slice_is_given_back_by_keyboard_alone(site: Site, browser: Browser, javascript: bool) -> None:
    leases = await furnish(site)
    page = await site.page(browser, "ann", javascript=javascript)
    await page.goto("")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await _press(page, "Give back: default server")
    await page.wait_for_url("**/release")
    await _press(page, "Give it back")
    await expect(page.get_by_role("status")).to_contain_text("The slice was given back")
    assert (await site.rig.state(leases["active"])).state is LeaseState.RELEASING


async def test_an_admin_acts_without_scripts(site: Site, browser: Browser) -> None:
    leases = await furnish(site)
    page = await site.page(browser, "root", javascript=False)
    await page.goto("admin/map?holder=ann")
    await expect(page.locator("figure.gpu")).to_have_count(1)
    await page.get_by_role("link", name="Leases").click()
    await page.get_by_role("link", name="End the lease of bob/train", exact=True).click()
    await page.get_by_label("Message").fill("We need the node.")
    await page.get_by_role("button", name="End the lease").click()
    await expect(page.get_by_role("status")).to_contain_text("The lease was ended")
    await expect(page.locator("main")).to_contain_text("We need the node.")
    assert (await site.rig.state(leases["whole"])).state is LeaseState.RELEASING
    await page.get_by_role("link", name="Nodes").click()
    await page.get_by_role("link", name="n1").click()
    await page.get_by_role("link", name="Cordon").click()
    await page.get_by_role("button", name="Cordon").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("cordoned")


async def _press(page: Page, name: str) -> None:
    """Go to what has this name by Tab, and press Enter."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await page.evaluate(
            "name => document.activeElement.textContent.replace(/\\s+/g, ' ').trim() === name", name
        ):
            await page.keyboard.press("Enter")
            return
    pytest.fail(f"the keyboard never reaches {name}")
