"""My slices: what somebody holds, and what is free."""

from __future__ import annotations

from mig_spawner.allocator.handlers.page.base import PageHandler


class Slices(PageHandler):
    """Who am I, what do I hold, what is free."""

    async def page(self, *names: str) -> None:
        person = self.principal.person
        view = await self.context.run(lambda: self.context.pages.own(person))
        await self.show("slices.html", view=view)
