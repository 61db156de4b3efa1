"""The map of every GPU."""

from __future__ import annotations

from mig_spawner.allocator.handlers.page.base import PageHandler
from mig_spawner.allocator.page.fleet import MapQuery, Show
from mig_spawner.allocator.page.picture import Kind


class Map(PageHandler):
    """Every GPU's grid, filtered and in pages."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(MapQuery)
        view = await self.context.run(lambda: self.context.pages.map(query))
        await self.show("admin/map.html", view=view, kinds=tuple(Kind), shows=tuple(Show))
