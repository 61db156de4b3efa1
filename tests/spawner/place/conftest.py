"""A hub behind a front, below a path, once with domains of its own; and a Chromium to look at it with."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from jupyterhub.utils import subdomain_hook_idna
from playwright.async_api import Browser, async_playwright

from tests.controlplane.assets import in_ci
from tests.spawner.hub import conftest as hub
from tests.spawner.hub.conftest import Cluster, Desk, World
from tests.spawner.place.front import Front
from tests.spawner.place.town import BASE, DOMAIN, Town


@pytest.fixture(scope="module", params=["below a path", "with subdomains"])
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder, front = tmp_path_factory.mktemp("town"), Front()
    domains = request.param == "with subdomains"
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
            front.open(f"{BASE}/services/mig/", *(_origin(url) for url in (world.hub_url, world.allocator_url)))
            yield Town(world, f"{host}{BASE}", pages)
            front.close()
        finally:
            for part in reversed(world.parts):
                part.kill(signal.SIGTERM if part is not world.hub else signal.SIGKILL)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


@pytest.fixture
async def desk(town: Town) -> AsyncIterator[Desk]:
    desk = Desk(town.world)
    try:
        await desk.until(desk.all_free, "a world at rest")
        yield desk
    finally:
        await desk.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        give_up = pytest.fail if in_ci(os.environ) else pytest.skip
        give_up("there is no Chromium on this machine (Debian: apt install chromium)")
    arguments = ["--disable-gpu", "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        await browser.close()
