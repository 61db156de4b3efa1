"""Usage and quotas for admins."""

from __future__ import annotations

from mig_spawner.allocator.handlers.page.base import PageHandler
from mig_spawner.allocator.page.usage import QuotaQuery, UsageQuery
from mig_spawner.wire.quota import UsageKey


class UsagePage(PageHandler):
    """Who used how much; the API has the same for spreadsheets."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(UsageQuery)
        view = await self.context.run(lambda: self.context.pages.usage(query))
        await self.show("admin/usage.html", view=view, keys=tuple(UsageKey))


class QuotaPage(PageHandler):
    """What is left for anybody."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(QuotaQuery)
        await self.show("admin/quotas.html", view=await self.context.run(lambda: self.context.pages.quotas(query)))
