"""A running demo, shared by all tests here, and a Chromium to look at it with.

Every test has a person of its own, so that tests do not meet in one server.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import chromium
from tests.browser.desk import Demo, Desks
from tests.controlplane.fixture import control_plane
from tests.kube.referee import Referee, referee
from tests.page.conftest import site_fixture
from tests.page.test_layout import scene

__all__ = ["chromium", "control_plane", "referee", "scene", "site_fixture"]

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 150

MENU: Final = """
- {id: cpu, display_name: CPU only, none: true, default: true, mem_limit: 512M}
- {id: small, display_name: Small slice, description: First steps., profile: 1g.10gb, mem_limit: 1G}
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
async def desks(demo: Demo, browser: Browser) -> AsyncIterator[Desks]:
    desks = Desks(demo, browser)
    yield desks
    await desks.close()
