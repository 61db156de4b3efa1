"""What was: the audit for admins, and what somebody held before."""

from __future__ import annotations

from mig_spawner.allocator.handlers.page.base import PageHandler
from mig_spawner.allocator.page.past import AuditQuery
from mig_spawner.wire.base import Document, Label


class EndedQuery(Document):
    """After which lease to go on."""

    after: Label = ""


class Audit(PageHandler):
    """Every change of a lease and every act on a node."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(AuditQuery)
        await self.show("admin/audit.html", view=await self.context.run(lambda: self.context.pages.audit(query)))


class Ended(PageHandler):
    """What somebody held before."""

    async def page(self, *names: str) -> None:
        query, person = self.asked(EndedQuery), self.principal.person or ""
        view = await self.context.run(lambda: self.context.pages.ended(person, query.after))
        await self.show("history.html", view=view, query=query)
