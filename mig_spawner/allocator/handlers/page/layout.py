"""Layouts for admins: proposals to cut GPUs anew with what they would do, and saying yes or no to one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field

from mig_spawner.allocator.handlers.page.base import Did, PageHandler, Question
from mig_spawner.wire.base import Document, Text
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeRejection


class Approving(Document):
    """The form with which an admin says yes: from now on, for so many hours; 0 for until it is taken back."""

    hours: Annotated[float, Field(ge=0, le=366 * 24, allow_inf_nan=False)] = 0


class Rejecting(Document):
    """The form with which an admin says no, or takes back. `message` is kept in the audit."""

    message: Text = ""


class Layouts(PageHandler):
    """All proposals."""

    for_admins = True

    async def page(self, *names: str) -> None:
        await self.show("admin/layouts.html", view=await self.context.run(self.context.reshapes.reshapes))


class Preview(PageHandler):
    """One proposal: the GPU as it is and as it would be. What is asked about it stands in the template."""

    for_admins = True
    template: ClassVar[str]

    async def page(self, *names: str) -> None:
        found = await self.context.run(lambda: self.context.reshapes.preview(names[0]))
        await self.show(self.template, found=found)


class Approve(Question, Preview):
    """Saying yes, after one question."""

    template = "admin/approve.html"

    async def act(self, *names: str) -> None:
        hours, who = self.form(Approving).hours, self.principal.who
        await self.call(lambda: self._approve(names[0], hours, who))
        self.done("admin/layouts", Did.APPROVED)

    def _approve(self, reshape_id: str, hours: float, who: str) -> None:
        with self.context.desk.reading() as ledger:
            now = ledger.now
        approval = ReshapeApproval(ends_at=now + timedelta(hours=hours) if hours else None)
        self.context.reshapes.approve(reshape_id, approval, who=who)


class Reject(Question, Preview):
    """Saying no or taking back, after one question."""

    template = "admin/reject.html"

    async def act(self, *names: str) -> None:
        rejection, who = ReshapeRejection(message=self.form(Rejecting).message.strip()), self.principal.who
        await self.call(lambda: self.context.reshapes.reject(names[0], rejection, who=who))
        self.done("admin/layouts", Did.REJECTED)
