"""Pictures for the documentation, light and dark: the spawn form, the waiting line, the notebook, and every page of the allocator.

    python -m tests.browser.shots FOLDER [pages|demo]

It starts a demo, and an allocator with something of everything on it. Look at the pictures before you commit them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, ViewportSize, async_playwright

from mig_spawner.demo.option import Options
from mig_spawner.demo.person import Person
from mig_spawner.demo.report import Report
from mig_spawner.demo.stack import Stack
from tests.allocator.rig import SERVICE_TOKEN
from tests.page.site import furnish, site

CODE: Final = "!nvidia-smi -L\n!echo $MIG_PROFILE $NVIDIA_VISIBLE_DEVICES"
SCHEMES: Final = ("light", "dark")
WINDOW: Final[ViewportSize] = {"width": 1100, "height": 760}
MENU: Final = {
    "currency": "credits",
    "contact": "gpu-help@example.org",
    "entries": [
        {"display_name": "No GPU", "none": True, "default": True},
        {"display_name": "Small slice", "profile": "1g.10gb", "price": 0.5, "duration": 28800},
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
    "lease": ("ann", "leases/{active}"),
    "give-back": ("ann", "leases/{active}/release"),
    "map": ("root", "admin/map"),
    "leases": ("root", "admin/leases"),
    "end-lease": ("root", "admin/leases/{active}/end"),
    "queue": ("root", "admin/queue"),
    "nodes": ("root", "admin/nodes"),
    "node": ("root", "admin/nodes/n1"),
    "drain": ("root", "admin/nodes/n1/drain"),
    "menu": ("root", "admin/menu"),
    "quotas": ("root", "admin/quotas?user=ann"),
    "usage": ("root", "admin/usage"),
    "audit": ("root", "admin/audit"),
}
"""Who looks at which page of the allocator; `{active}` is a lease."""


async def main(folder: Path, part: str) -> None:
    """Take all pictures, or those of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        if part in ("all", "pages"):
            await _pages(browser, folder)
        if part in ("all", "demo"):
            await _demo(browser, folder)
        await browser.close()


async def _pages(browser: Browser, folder: Path) -> None:
    """Every page of the allocator."""
    os.environ["JUPYTERHUB_API_TOKEN"] = SERVICE_TOKEN
    with tempfile.TemporaryDirectory() as scratch:
        async with site(Path(scratch), datetime.now(UTC), menu=MENU) as running:
            leases = await furnish(running)
            for scheme in SCHEMES:
                windows = {
                    who: await running.page(browser, who, color_scheme=scheme, viewport=WINDOW, locale="en-GB")
                    for who in ("ann", "root")
                }
                for name, (who, path) in PAGES.items():
                    await windows[who].goto(path.format(active=leases["active"].lease_id))
                    await windows[who].screenshot(path=folder / f"{name}-{scheme}.png", full_page=True)


async def _demo(browser: Browser, folder: Path) -> None:
    """What a person sees from the form to the notebook."""
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
        page = await _window(browser, stack, "alice", "light")
        await page.goto(f"{stack.url}/hub/spawn/alice")
        await page.get_by_label("Small slice").check()
        await page.click("#spawn_form [type=submit]")
        await page.wait_for_url("**/lab**")
        await _notebook(page, folder)
        await page.context.close()

        await carol.log_in()
        page = await _window(browser, stack, "carol", "light")
        await page.goto(f"{stack.url}/hub/spawn/carol")
        await page.get_by_label("Whole GPU").check()
        await page.click("#spawn_form [type=submit]")
        await page.locator("#progress-message", has_text="position").wait_for()
        await page.click("#progress-details summary")
        await page.screenshot(path=folder / "progress.png", full_page=True)
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


async def _notebook(page: Page, folder: Path) -> None:
    """A new notebook with one cell that shows the slice."""
    await page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    cell = page.locator(".jp-NotebookPanel .jp-Cell .cm-content").first
    await cell.click()
    await page.keyboard.insert_text(CODE)
    await page.keyboard.press("Shift+Enter")
    await page.locator(".jp-OutputArea-output", has_text="1g.10gb").last.wait_for()
    await page.screenshot(path=folder / "notebook.png")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all"))
