"""A running demo, shared by all tests here, and a Chromium to look at it with.

Every test has a person of its own, so that tests do not meet in one server.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright

from tests.browser.desk import Demo, Desks
from tests.controlplane.assets import in_ci
from tests.controlplane.fixture import control_plane
from tests.kube.referee import Referee, referee
from tests.page.conftest import site_fixture
from tests.page.test_layout import scene

__all__ = ["control_plane", "referee", "scene", "site_fixture"]

ROOT: Final = Path(__file__).resolve().parents[2]
CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_S: Final = 150

MENU: Final = """
- {id: cpu, display_name: CPU only, none: true, default: true, mem_limit: 512M}
- {id: small, display_name: Small slice, description: First steps., profile: 1g.10gb, mem_limit: 1G}
- {id: medium, display_name: Medium slice, profile: 2g.20gb, mem_limit: 1G}
- {id: huge, display_name: Huge slice, profile: 7g.141gb, mem_limit: 1G}
- {id: evil, display_name: "<b>Bold</b><script>document.title = 'stolen'</script>", profile: 3g.40gb, mem_limit: 1G}
- {id: whole, display_name: Whole GPU, whole: true, mem_limit: 1G}
"""


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, referee: Referee | None) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    menu = folder / "menu.yaml"
    menu.write_text(MENU)
    log = folder / "output"
    arguments = [
        "demo",
        "--port",
        "0",
        "--users",
        "12",
        "--gpu",
        "a100-80gb:1",
        "--menu",
        str(menu),
        "--logs",
        str(folder / "logs"),
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV_", "COVERAGE_", "PYTEST_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mig_spawner.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env={**env, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
            start_new_session=True,
        )
    try:
        yield _printed(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
    if referee is not None:
        referee.judge(folder / "logs" / "kubernetes-audit.log")


def _printed(process: subprocess.Popen[bytes], log: Path) -> Demo:
    """Wait until the demo says where to go."""
    for _ in range(START_S * 10):
        text = log.read_text(errors="replace")
        if "Ctrl-C ends the demo" in text:
            break
        try:
            status = process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"the demo ended with {status}:\n{text}")
    else:
        pytest.fail(f"the demo did not come up:\n{log.read_text(errors='replace')}")
    found = {
        name: re.search(rf"{name}\s+(.+?)\s*(?:│|$)", text, re.MULTILINE) for name in ("Open", "Password", "Log in as")
    }
    url, password, names = (m[1] if m else pytest.fail(f"not printed: {text}") for m in found.values())
    return Demo(url, password, names.partition(" (")[0].split(", "))


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        give_up = pytest.fail if in_ci(os.environ) else pytest.skip
        give_up("there is no Chromium on this machine (Debian: apt install chromium)")
    arguments = ["--disable-gpu", "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        await browser.close()


@pytest.fixture
async def desks(demo: Demo, browser: Browser) -> AsyncIterator[Desks]:
    desks = Desks(demo, browser)
    yield desks
    await desks.close()
