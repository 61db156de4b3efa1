"""The menu, as any person sees it, for admins."""

from __future__ import annotations

from mig_spawner.allocator.handlers.page.base import PageHandler
from mig_spawner.allocator.page.menu import MenuQuery, MenuView, menu_view


class Menu(PageHandler):
    """What is loaded, and what somebody sees of it on a day."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(MenuQuery)
        await self.show("admin/menu.html", view=await self.context.run(lambda: self._view(query)))

    def _view(self, query: MenuQuery) -> MenuView:
        with self.context.desk.reading() as ledger:
            now = ledger.now
        return menu_view(self.context.menu, query, now)
