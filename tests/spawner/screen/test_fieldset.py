"""The fieldset of the form in a page of the hub's look, under a policy that allows no inline script or style."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from jupyterhub._data import DATA_FILES_PATH
from playwright.async_api import Browser, Page, Route, expect

from mig_spawner.allocator.page.asset import STATIC
from mig_spawner.domain.quota import Scope, Unit
from mig_spawner.spawner.allowance import Own
from mig_spawner.spawner.form import form_view, render_form
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.lease import RangeDocument
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.quota import QuotaDocument
from tests.browser.look import violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STYLE: Final = Path(DATA_FILES_PATH) / "static" / "css" / "style.min.css"
POLICY: Final = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:"
MENU: Final = {
    "currency": "credits",
    "entries": [
        {"display_name": "CPU only", "none": True, "default": True},
        {"display_name": "Small slice", "profile": "1g.10gb", "price": 0.5, "duration": 28800},
        {"display_name": "Medium slice", "profile": "2g.20gb", "duration": 28800},
        {"display_name": "Large slice", "profile": "3g.40gb", "duration": 14400},
        {"display_name": "Huge slice", "profile": "7g.141gb"},
        {"display_name": "Whole GPU", "whole": True},
    ],
}


QUOTAS: Final = (
    QuotaDocument(
        name="",
        per=Scope.PERSON,
        subject="a",
        unit=Unit.MEMORY_GB,
        limit=60,
        used=20,
        left=40,
        text="You have 20 of 60 GB.",
    ),
)


def _in_hours(earliest: float, latest: float) -> RangeDocument:
    now = datetime.now(UTC)
    return RangeDocument(earliest=now + timedelta(hours=earliest), latest=now + timedelta(hours=latest))


def _offer(profile: str | None, free: int, total: int, gb: int, share: float, waiting: int = 0) -> OfferDocument:
    return OfferDocument(
        profile=profile,
        free=free,
        total=total,
        memory_gb=gb,
        memory_mib=gb * 1000,
        multiprocessors=round(98 * share),
        multiprocessors_total=98,
        share=share,
        models=("A100",),
        waiting=waiting,
        first_end=None if free else datetime.now(UTC) + timedelta(hours=1),
        starts_between=None if free or profile is None else _in_hours(1, 2),
        cannot_tell="It has to wait for 1 lease." if not free and profile is None else None,
    )


async def _open(browser: Browser, scheme: str = "light", width: int = 900, *, javascript: bool = True) -> Page:
    """The form in a page, with the large slice remembered."""
    offers = (
        _offer("1g.10gb", 3, 7, 10, 0.125),
        _offer("2g.20gb", 1, 3, 20, 0.25),
        _offer("3g.40gb", 0, 2, 40, 0.5, waiting=2),
        _offer(None, 0, 1, 80, 1.0),
    )
    availability = Availability(
        as_of=datetime.now(UTC), offers=offers, queue_length=2, nodes=1, nodes_silent=0, simulated=True
    )
    own = Own(QUOTAS, {"1g.10gb": 7500})
    view = form_view(Menu.parse(MENU), availability, saved="large-slice", assets="/services/mig", own=own)
    html = (
        f'<!DOCTYPE html><html lang="en" data-bs-theme="{scheme}"><head><meta charset="utf-8"><title>Options</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/style.css"></head><body>'
        f'<main class="container"><h1>Server Options</h1><form id="spawn_form">{render_form(view)}'
        '<button class="btn btn-primary">Start</button></form></main></body></html>'
    )
    context = await browser.new_context(
        viewport={"width": width, "height": 700},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=javascript,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    page = await context.new_page()

    async def answer(route: Route) -> None:
        path = route.request.url.removeprefix("http://hub.test")
        if path.startswith("/hub/spawn"):
            await route.fulfill(content_type="text/html", headers={"Content-Security-Policy": POLICY}, body=html)
        elif path == "/style.css":
            await route.fulfill(path=STYLE)
        elif path.startswith("/services/mig/static/"):
            await route.fulfill(path=STATIC / path.rpartition("/")[2])
        else:
            await route.abort()

    await page.route("**/*", answer)
    await page.goto("http://hub.test/hub/spawn")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_in_the_form(browser: Browser, scheme: str) -> None:
    page = await _open(browser, scheme)
    await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    assert await violations(page) == []


async def test_the_form_fits_a_small_screen(browser: Browser) -> None:
    page = await _open(browser, width=320)
    await page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 320


async def test_one_line_says_what_will_happen(browser: Browser) -> None:
    page = await _open(browser)
    summary = page.locator(".mig-summary")
    large = "Your server waits in line for Large slice (40 GB), behind 2, and starts with it, for at most 4 h."
    await expect(summary).to_contain_text(large)
    await expect(summary).to_have_text(re.compile(r"It would start between \d\d:\d\d and \d\d:\d\d\.$"))
    await page.get_by_label("Whole GPU", exact=True).check()
    await expect(summary).to_have_text("Your server would not start. A quota is against it: you have 20 of 60 GB.")
    await page.get_by_label("CPU only", exact=True).check()
    await expect(summary).to_have_text("Your server starts without a GPU.")
    await page.get_by_label("Large slice", exact=True).check()
    await page.locator(".mig-instead label", has_text="Medium").first.click()
    await expect(summary).to_have_text("Your server starts with Medium slice (20 GB), for at most 8 h.")


async def test_the_smallest_that_fits_a_need_and_how_much_a_model_needs(browser: Browser) -> None:
    page = await _open(browser)
    fits = page.locator("#mig-need-fit")
    await page.fill("#mig-need", "12")
    await expect(fits).to_have_text("Medium slice (20 GB): the smallest with at least 12 GB.")
    assert await page.input_value("#mig-choice-by-need") == "medium-slice"
    await page.fill("#mig-need", "500")
    await expect(fits).to_contain_text("Nothing here has 500 GB")
    await page.locator(".mig-calculator summary").click()
    await page.fill("#mig-billions", "13")
    await page.select_option("#mig-task", "1")
    await expect(page.locator("#mig-result")).to_have_text("About 40 GB.")
    await page.click("#mig-take")
    await expect(fits).to_have_text("Large slice (40 GB): the smallest with at least 40 GB.")
    await page.select_option("#mig-task", "2")
    await page.select_option("#mig-precision", "3")
    await expect(page.locator("#mig-take")).to_be_disabled()


async def test_without_scripts_nothing_is_promised_that_only_scripts_keep(browser: Browser) -> None:
    page = await _open(browser, javascript=False)
    await expect(page.locator(".mig-summary, .mig-slider, .mig-calculation")).to_have_count(3)
    for hidden in await page.locator(".mig-summary, .mig-slider, .mig-calculation").all():
        await expect(hidden).to_be_hidden()
    await page.locator(".mig-instead label", has_text="Small").first.click()
    await expect(page.get_by_label("Small slice", exact=True)).to_be_checked()
