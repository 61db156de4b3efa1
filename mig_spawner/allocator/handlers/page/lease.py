"""Leases for admins: searching them, ending one with a message, and the line of those who wait."""

from __future__ import annotations

from mig_spawner.allocator.handlers.page.base import Did, PageHandler, Question
from mig_spawner.allocator.handlers.page.own import LeasePage
from mig_spawner.allocator.openapi.parameter import QUEUE_CURSOR
from mig_spawner.allocator.page.search import PAGE_LEASES, LeaseQuery
from mig_spawner.allocator.queue.view import Viewer
from mig_spawner.domain.lease import EndReason
from mig_spawner.wire.base import Document, Label, Text
from mig_spawner.wire.lease import LeaseRelease, LeaseState


class Ending(Document):
    """The form with which an admin ends a lease. `message` is for its holder."""

    message: Text = ""


class QueueQuery(Document):
    """After whom the page of the queue begins."""

    after: Label = ""


class Leases(PageHandler):
    """Every open lease, searched and in pages."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(LeaseQuery)
        view = await self.context.run(lambda: self.context.pages.leases(query))
        await self.show(
            "admin/leases.html", view=view, states=tuple(s for s in LeaseState if s is not LeaseState.CLOSED)
        )


class End(Question, LeasePage):
    """Ending somebody's lease, after one question."""

    for_admins = True

    async def page(self, *names: str) -> None:
        await self.show("admin/end.html", view=await self.lease(names[0]))

    async def act(self, *names: str) -> None:
        message = self.form(Ending).message.strip()
        view = await self.lease(names[0])
        release = LeaseRelease(reason=EndReason.FORCED, message=message)
        who = self.principal.who
        await self.call(lambda: self.context.leases.release(view.lease.lease_id, release, who=who))
        self.done(f"leases/{view.lease.lease_id}", Did.ENDED)


class Queue(PageHandler):
    """Who waits, in order, and why."""

    for_admins = True

    async def page(self, *names: str) -> None:
        after = self.asked(QueueQuery).after
        place = QUEUE_CURSOR.parse([after]) if after else None
        viewer = Viewer(self.principal.person, sees_all=True)
        view = await self.context.run(lambda: self.context.queue.queue(viewer, after=place, limit=PAGE_LEASES))
        await self.show("admin/queue.html", view=view, after=after)
