"""`api/v1/quotas`, `usage` and `usage.csv`: what is left, and who used how much."""

from __future__ import annotations

from datetime import timedelta

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import allow, query
from mig_spawner.allocator.handlers.menu import ViewHandler
from mig_spawner.allocator.openapi.parameter import USAGE_BY, USAGE_WINDOW, VIEW_GROUP, VIEW_USER
from mig_spawner.allocator.quota.view import quota_documents, usage, usage_csv
from mig_spawner.wire.quota import QuotaList, Usage, UsageKey

DEFAULT_WINDOW_S = 30 * 86400.0


class Quotas(ViewHandler):
    """What is left for the caller, or for whom those who see everything name."""

    @allow(Role.SERVICE, Role.READ)
    @query(VIEW_USER, VIEW_GROUP)
    async def get(self) -> None:
        person = self.viewed

        def read() -> QuotaList:
            with self.context.desk.reading() as ledger:
                return QuotaList(quotas=quota_documents(ledger, person))

        self.answer(await self.context.run(read))


class UsageHandler(ViewHandler):
    """Who used how much. A person sees their own."""

    @allow(Role.SERVICE, Role.READ)
    @query(USAGE_BY, USAGE_WINDOW, VIEW_USER)
    async def get(self) -> None:
        whose = self.viewed.name if self.views_as or not self.principal.sees_all else None
        self.answer(await self.context.run(lambda: self.read(whose)))

    def read(self, whose: str | None) -> Usage:
        """The document, of one person or of everybody."""
        by, window = self.value(USAGE_BY, UsageKey.PERSON), self.value(USAGE_WINDOW, DEFAULT_WINDOW_S)
        with self.context.desk.reading() as ledger:
            return usage(ledger, by, timedelta(seconds=window), whose)


class UsageCSV(UsageHandler):
    """The same for spreadsheets, of everybody."""

    @allow(Role.SERVICE, Role.ADMIN)
    @query(USAGE_BY, USAGE_WINDOW, VIEW_USER)
    async def get(self) -> None:
        whose = self.viewed.name if self.views_as else None
        found: Usage = await self.context.run(lambda: self.read(whose))
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="gpu-usage.csv"')
        self.finish(usage_csv(found))  # type: ignore[unused-awaitable]
