"""Pictures of a running demo for the documentation: form, waiting line and notebook.

    python -m tests.browser.shots FOLDER

It starts a demo of its own. Look at the pictures before you commit them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

from playwright.async_api import Page, async_playwright

from mig_spawner.demo.option import Options
from mig_spawner.demo.person import Person
from mig_spawner.demo.report import Report
from mig_spawner.demo.stack import Stack

CODE = "!nvidia-smi -L\n!echo $MIG_PROFILE $NVIDIA_VISIBLE_DEVICES"


async def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    options = Options.of(gpus=("a100-80gb:1",), port=0)
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with Stack(options, Report()) as stack, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = await browser.new_page(viewport={"width": 1100, "height": 900}, device_scale_factor=1.5)
        page.set_default_timeout(90_000)
        async with (
            Person("bob", stack.url, options.password) as bob,
            Person("carol", stack.url, options.password) as carol,
        ):
            await bob.log_in()
            await bob.start({"mig_choice": "3g.40gb"})
            await bob.ready()
            await _log_in(page, stack, "alice")
            await page.goto(f"{stack.url}/hub/spawn/alice")
            await page.get_by_text("Counts are live").wait_for()
            await page.screenshot(path=folder / "form.png", full_page=True)

            await page.get_by_label("Small slice").check()
            await page.click("#spawn_form [type=submit]")
            await page.wait_for_url("**/lab**")
            await _notebook(page, folder)

            await carol.log_in()
            await page.context.clear_cookies()
            await _log_in(page, stack, "carol")
            await page.goto(f"{stack.url}/hub/spawn/carol")
            await page.get_by_label("Whole GPU").check()
            await page.click("#spawn_form [type=submit]")
            await page.locator("#progress-message", has_text="position").wait_for()
            await page.click("#progress-details summary")
            await page.screenshot(path=folder / "progress.png", full_page=True)
        await browser.close()


async def _log_in(page: Page, stack: Stack, name: str) -> None:
    await page.goto(f"{stack.url}/hub/login")
    await page.fill("input[name=username]", name)
    await page.fill("input[name=password]", stack.options.password)
    await page.click("[type=submit]")
    await page.wait_for_url(lambda url: "/hub/login" not in url)


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
    asyncio.run(main(Path(sys.argv[1])))
