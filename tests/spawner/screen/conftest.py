"""A hub behind a front, and a Chromium to look at it with.

Everything here runs on JupyterHub 6 and on the templates of 5.5, see `make test-hub5`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import Browser, Page

from tests.browser.chromium import chromium
from tests.spawner.hub.conftest import Desk, Person
from tests.spawner.screen.town import Town, town_in

__all__ = ["chromium"]


@pytest.fixture(scope="session")
def below_a_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town_in(tmp_path_factory.mktemp("town")) as town:
        yield town


@pytest.fixture
def town(below_a_path: Town) -> Town:
    """The hub of a test; whoever wants another one overrides it."""
    return below_a_path


@pytest.fixture
async def desk(town: Town) -> AsyncIterator[Desk]:
    town.world.heal()
    desk = Desk(town.world)
    try:
        await desk.until(desk.all_free, "a world at rest")
        yield desk
    finally:
        await desk.close()


@dataclass
class Seat:
    """Somebody before a screen: their window, and the same person by the hub's API."""

    town: Town
    person: Person
    page: Page

    async def form(self) -> None:
        await self.page.goto(f"{self.town.hub}/hub/spawn/{self.person.name}")
        await self.page.wait_for_selector("#mig-choices")

    async def start(self, choice: str) -> None:
        """Take this of the form and send it, up to the waiting room."""
        await self.form()
        await self.page.check(f"#mig-choice-{choice}")
        await self.submit()

    async def submit(self) -> None:
        await self.page.click("#spawn_form [type=submit]")
        await self.page.wait_for_selector("#mig-room")

    async def chosen(self) -> object:
        """The choice that the hub has for this person's server."""
        server = await self.person.server()
        assert server is not None
        return server["user_options"]["mig"]["choice"]


class Seats:
    """Gives people a place before a screen."""

    def __init__(self, town: Town, desk: Desk, browser: Browser) -> None:
        self.desk = desk
        self._town = town
        self._browser = browser

    async def take(self, kind: str = "ada", **options: Any) -> Seat:
        """`kind`: as the configuration of the hub tells people apart; `options`: of the window."""
        person = await self.desk.person(kind)
        return Seat(self._town, person, await self._town.window(self._browser, person.name, **options))

    async def hold(self, choice: str) -> Person:
        """Somebody without a screen who has this and runs with it."""
        bob = await self.desk.person("bob")
        await bob.start({"mig": choice})
        await self.desk.until(bob.ready)
        return bob


@pytest.fixture
def seats(town: Town, desk: Desk, browser: Browser) -> Seats:
    return Seats(town, desk, browser)
