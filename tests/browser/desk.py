"""Where a test's person sits: a browser page, and the same person without a browser to tidy up afterwards."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from playwright.async_api import Browser, Page

from mig_spawner.demo.person import Person
from mig_spawner.testing.process import until


@dataclass
class Demo:
    """The running demo as a person sees it printed."""

    url: str
    password: str
    unused: list[str] = field(default_factory=list)

    def next_person(self) -> str:
        """Somebody whom no other test uses."""
        return self.unused.pop()


class Desk:
    """Where a test's person sits: their browser page, and the same person without a browser to tidy up afterwards."""

    def __init__(self, demo: Demo, name: str, page: Page, person: Person) -> None:
        self.demo = demo
        self.name = name
        self.page = page
        self.person = person

    async def log_in(self) -> None:
        await self.page.goto(f"{self.demo.url}/hub/login")
        await self.page.fill("input[name=username]", self.name)
        await self.page.fill("input[name=password]", self.demo.password)
        await self.page.click("input[type=submit], button[type=submit]")
        await self.page.wait_for_url("**/hub/**")

    async def open_form(self) -> None:
        await self.log_in()
        await self.page.goto(f"{self.demo.url}/hub/spawn/{self.name}")
        await self.page.wait_for_selector("#mig-choices")

    async def submit(self) -> None:
        await self.page.click("#spawn_form [type=submit]")


class Desks:
    """Opens desks; whatever servers their people started are stopped when the test ends."""

    def __init__(self, demo: Demo, browser: Browser) -> None:
        self._demo = demo
        self._browser = browser
        self._exit = AsyncExitStack()

    async def open(self, *, javascript: bool = True) -> Desk:
        person = await self.person()
        context = await self._browser.new_context(java_script_enabled=javascript)
        self._exit.push_async_callback(context.close)
        page = await context.new_page()
        page.set_default_timeout(45_000)
        return Desk(self._demo, person.name, page, person)

    async def person(self) -> Person:
        """Somebody logged in over HTTP, without a browser."""
        person = await self._exit.enter_async_context(
            Person(self._demo.next_person(), self._demo.url, self._demo.password)
        )
        await person.log_in()
        self._exit.push_async_callback(self._stop, person)
        return person

    async def close(self) -> None:
        """Stop what was started, and wait until the next test finds everything free."""
        await self._exit.aclose()
        async with Person("admin", self._demo.url, self._demo.password) as admin:
            await admin.log_in()

            async def all_free() -> bool:
                return "free now 1 of 1" in await admin.form()  # the whole GPU

            await until(all_free, timeout_s=60, every_s=0.2, seen="the GPU did not become free after a test")

    @staticmethod
    async def _stop(person: Person) -> None:
        if await person.server() is not None:
            await person.stop()
