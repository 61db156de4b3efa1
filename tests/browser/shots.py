"""Pictures for the documentation, light and dark: the spawn form, the waiting room, and every page of the allocator.

    python -m tests.browser.shots FOLDER [pages|demo]

It starts a demo, and an allocator with something of everything on it. Look at the pictures before you commit them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from mig_spawner.demo.option import Options
from mig_spawner.demo.person import Person
from mig_spawner.demo.report import Report
from mig_spawner.demo.stack import Stack
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.testing.process import until
from mig_spawner.wire.lease import LeaseDocument, LeaseRelease
from tests.allocator.reshape.test_reshape import proposed, teaching, waiter
from tests.allocator.rig import SERVICE_TOKEN, Rig
from tests.allocator.test_usage import using
from tests.browser.chromium import CHROMIUM
from tests.page.site import Site, furnish, site

SCHEMES: Final = ("light", "dark")
WINDOW: Final[ViewportSize] = {"width": 1100, "height": 760}
MENU: Final[dict[str, Any]] = {
    "currency": "credits",
    "contact": "gpu-help@example.org",
    "entries": [
        {"display_name": "No GPU", "none": True, "default": True},
        {"display_name": "Small slice", "profile": "1g.10gb", "price": 0.5, "duration": 28800, "max_duration": 86400},
        {"display_name": "Medium slice", "profile": "2g.20gb", "price": 1, "duration": 28800},
        {"display_name": "Large slice", "profile": "3g.40gb", "price": 2, "duration": 14400},
        {"display_name": "Nearly a GPU", "profile": "7g.80gb", "price": 4},
        {"display_name": "Whole GPU", "whole": True, "price": 4},
        {"display_name": "At night", "profile": "4g.40gb", "groups": ["research"], "hours": ["Mon-Fri 20:00-24:00"]},
    ],
    "quotas": [{"per": "person", "slices": 3, "gpu_hours": 40, "window": "7d"}],
}
PAGES: Final = {
    "my-slices": ("ann", ""),
    "history": ("ann", "history"),
    "lease": ("ann", "leases/{active}"),
    "extend": ("ann", "leases/{active}/extend"),
    "give-back": ("ann", "leases/{active}/release"),
    "map": ("root", "admin/map"),
    "leases": ("root", "admin/leases"),
    "end-lease": ("root", "admin/leases/{active}/end"),
    "queue": ("root", "admin/queue"),
    "nodes": ("root", "admin/nodes"),
    "node": ("root", "admin/nodes/n1"),
    "cordon": ("root", "admin/nodes/n1/cordon"),
    "drain": ("root", "admin/nodes/n1/drain"),
    "menu": ("root", "admin/menu"),
    "quotas": ("root", "admin/quotas?user=ann"),
    "usage": ("root", "admin/usage"),
    "audit": ("root", "admin/audit"),
}
"""Who looks at which page of the allocator; `{active}` is a lease."""
LAYOUTS: Final = {"layouts": ("root", "admin/layouts"), "approve": ("root", "admin/layouts/{proposal}/approve")}
"""The same where a cut is proposed; `{proposal}` is it."""
AGO: Final = timedelta(minutes=50)
PATIENT: Final = dict.fromkeys(
    ("node_silent_after", "make_timeout", "ready_timeout", "heartbeat_timeout", "starvation_after"), 100_000
)
"""Nobody renews here, and most of an hour passes at once."""


async def main(folder: Path, part: str) -> None:
    """Take all pictures, or those of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        if part in ("all", "pages"):
            await _pages(browser, folder)
        if part in ("all", "demo"):
            await _demo(browser, folder)
        await browser.close()


async def _pages(browser: Browser, folder: Path) -> None:
    """Every page of the allocator."""
    os.environ["JUPYTERHUB_API_TOKEN"] = SERVICE_TOKEN
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "menu.yaml")
        file.write_text(yaml.safe_dump(MENU | {"entries": MENU["entries"][:-1], "contact": "help@example.org"}))
        async with site(Path(scratch), datetime.now(UTC) - AGO, menu_file=str(file), **PATIENT) as running:
            leases = await furnish(running, server="night")
            await _ended_by_an_admin(running)
            running.rig.clock.move(AGO.total_seconds() - 1560)
            file.write_text(yaml.safe_dump(MENU))
            await _report(running.rig, leases["active"])
            running.rig.app._menu.refresh()
            await _shoot(browser, running, folder, PAGES, active=leases["active"].lease_id)
    with tempfile.TemporaryDirectory() as scratch:
        async with site(Path(scratch), datetime.now(UTC), reshape_interval=0, settle_after=0) as running:
            await teaching(running.rig)
            await waiter(running.rig)
            await _shoot(browser, running, folder, LAYOUTS, proposal=(await proposed(running.rig)).reshape_id)


async def _ended_by_an_admin(running: Site) -> None:
    """A lease of ann's that is over, with what the admin said."""
    lease = await running.own("ann", "thesis", accelerator_partition_type="1g.10gb")
    await running.rig.nodes["n1"].turn()
    running.rig.clock.move(1500)
    said = "Sorry: we need the room for a course. There is more tomorrow."
    await running.rig.hub.release(lease.lease_id, LeaseRelease(reason=EndReason.FORCED, pod=PodFate.GONE, message=said))
    await running.rig.nodes["n1"].turn()


async def _report(rig: Rig, lease: LeaseDocument) -> None:
    """Every node reports once more, and one of them what is used of a lease."""
    place = lease.placement
    assert place is not None
    for node in rig.nodes.values():
        await node.client.report(
            node.name, using(node, 14_500, start=place.start) if node.name == place.node else node.document()
        )


async def _shoot(
    browser: Browser, running: Site, folder: Path, pages: dict[str, tuple[str, str]], **names: str
) -> None:
    for scheme in SCHEMES:
        windows = {
            who: await running.page(browser, who, color_scheme=scheme, viewport=WINDOW, locale="en-GB")
            for who in ("ann", "root")
        }
        for name, (who, path) in pages.items():
            await windows[who].goto(path.format(**names))
            await windows[who].screenshot(path=folder / f"{name}-{scheme}.png", full_page=True)


async def _demo(browser: Browser, folder: Path) -> None:
    """What a person sees from the form to the waiting room."""
    options = Options.of(gpus=("a100-80gb:1",), port=0)
    async with (
        Stack(options, Report()) as stack,
        Person("bob", stack.url, options.password) as bob,
        Person("carol", stack.url, options.password) as carol,
    ):
        await bob.log_in()
        await bob.start({"mig_choice": "3g.40gb"})
        await bob.ready()
        for scheme in SCHEMES:
            page = await _window(browser, stack, "alice", scheme)
            await page.goto(f"{stack.url}/hub/spawn/alice")
            await page.get_by_text("Counts are live").wait_for()
            await page.get_by_label("GPU memory in GB").first.fill("12")
            await page.screenshot(path=folder / ("form.png" if scheme == "light" else "form-dark.png"), full_page=True)
            await page.context.close()
        await carol.log_in()
        page = await _window(browser, stack, "carol", "light")
        await page.goto(f"{stack.url}/hub/spawn/carol")
        await page.get_by_label("Whole GPU").check()
        await page.click("#spawn_form [type=submit]")

        async def settled() -> bool:
            """It has been told what else could be had, and when its turn comes."""
            await page.reload()
            told = await page.locator("#progress-message").inner_text()
            return "just come" not in told and await page.locator("#mig-change").count() > 0

        await until(settled, timeout_s=60, every_s=1, seen="the waiting room offers nothing else")
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.reload()
            await page.locator("#progress-message", has_text="position").wait_for()
            await page.screenshot(path=folder / f"waiting-{scheme}.png", full_page=True)
        await page.context.close()


async def _window(browser: Browser, stack: Stack, name: str, scheme: str) -> Page:
    """A window in which somebody has logged in."""
    page = await browser.new_page(viewport=WINDOW, color_scheme="dark" if scheme == "dark" else "light", locale="en-GB")
    page.set_default_timeout(90_000)
    await page.goto(f"{stack.url}/hub/login")
    await page.fill("input[name=username]", name)
    await page.fill("input[name=password]", stack.options.password)
    await page.click("[type=submit]")
    await page.wait_for_url(lambda url: "/hub/login" not in url)
    return page


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all"))
