"""A Chromium to look at pages with."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.controlplane.assets import in_ci

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

expect.set_options(timeout=30_000)  # a condition that comes about costs no time; machines are busy


@pytest.fixture(name="browser")
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        give_up = pytest.fail if in_ci(os.environ) else pytest.skip
        give_up("there is no Chromium on this machine (Debian: apt install chromium)")
    arguments = ["--disable-gpu", "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()
