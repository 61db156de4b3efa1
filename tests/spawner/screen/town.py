"""A hub as browsers find it, and windows in which its people are logged in."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from jupyterhub.utils import subdomain_hook_idna
from playwright.async_api import Browser, Page

from tests.spawner.hub import conftest as hub
from tests.spawner.hub.conftest import Cluster, World
from tests.spawner.screen.front import Front

BASE: Final = "/gpus"
DOMAIN: Final = "hub.localhost"
"""Browsers find every domain below localhost on this machine, without asking anybody."""


@dataclass(frozen=True)
class Town:
    """A running hub.

    Attributes:
        hub: its URL, with the base path; `pages` that of the allocator's pages. Neither ends with a slash.
    """

    world: World
    front: Front
    hub: str
    pages: str

    async def window(self, browser: Browser, name: str, *, javascript: bool = True, **options: Any) -> Page:
        """A window in which somebody has logged in."""
        context = await browser.new_context(
            java_script_enabled=javascript, locale="en-GB", timezone_id="UTC", reduced_motion="reduce", **options
        )
        page = await context.new_page()
        page.set_default_timeout(30_000)
        await page.goto(f"{self.hub}/hub/login")
        await page.fill("input[name=username]", name)
        await page.fill("input[name=password]", "x")
        await page.click("[type=submit]")
        await page.wait_for_url(lambda url: "/hub/login" not in url)
        return page


@contextmanager
def town_in(folder: Path, *, domains: bool = False) -> Iterator[Town]:
    """A hub, an allocator and an agent behind one front, below a path; with `domains` each part on its own."""
    front = Front()
    host = f"http://{DOMAIN if domains else '127.0.0.1'}:{front.port}"
    service = f"http://{subdomain_hook_idna('mig', DOMAIN, 'service')}:{front.port}" if domains else host
    pages = f"{service}{BASE}/services/mig"
    with Cluster(folder) as cluster:
        world = World(folder, cluster, config=Path(__file__).with_name("jupyterhub_config.py"), base=BASE)
        world.hub.env |= {
            "TEST_HUB_CONFIG": str(Path(hub.__file__).with_name("jupyterhub_config.py")),
            "TEST_PUBLIC_URL": f"{host}{BASE}/",
            "TEST_SUBDOMAIN_HOST": host if domains else "",
            "TEST_PAGES_URL": pages,
        }
        # What a hub gives to the services that it starts itself.
        world.allocator.env |= {
            "JUPYTERHUB_API_TOKEN": world.hub.env["MIG_ALLOCATOR_TOKEN"],
            "JUPYTERHUB_BASE_URL": f"{BASE}/",
            "JUPYTERHUB_HOST": host if domains else "",
            "JUPYTERHUB_OAUTH_CALLBACK_URL": f"{pages}/oauth_callback" if domains else "",
        }
        try:
            world.start_allocator()
            world.agent.start()
            world.start_hub()
            front.open(BASE, *(_origin(url) for url in (world.hub_url, world.allocator_url)))
            yield Town(world, front, f"{host}{BASE}", pages)
            front.close()
        finally:
            for part in reversed(world.parts):
                part.kill(signal.SIGTERM if part is not world.hub else signal.SIGKILL)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
