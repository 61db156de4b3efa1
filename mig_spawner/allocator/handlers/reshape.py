"""`api/v1/reshapes…`: proposals to cut idle partitions anew."""

from __future__ import annotations

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeList, ReshapeRejection


class Reshapes(Handler):
    """All of them."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def get(self) -> None:
        found: ReshapeList = await self.context.run(self.context.reshapes.reshapes)
        self.answer(found)


class ReshapeHandler(Handler):
    """One of them."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def get(self, reshape_id: str) -> None:
        found: ReshapeDocument = await self.context.run(lambda: self.context.reshapes.preview(reshape_id))
        self.answer(found)


class Approve(Handler):
    """Saying yes."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def post(self, reshape_id: str) -> None:
        approval, who = self.parsed(ReshapeApproval), self.principal.who
        self.answer(await self.call(lambda: self.context.reshapes.approve(reshape_id, approval, who=who)))


class Reject(Handler):
    """Saying no, or taking back."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def post(self, reshape_id: str) -> None:
        rejection, who = self.parsed(ReshapeRejection), self.principal.who
        self.answer(await self.call(lambda: self.context.reshapes.reject(reshape_id, rejection, who=who)))
