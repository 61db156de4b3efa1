"""`api/v1/queue`, and what goes with waiting: `leases/{id}/explain` and `leases/{id}/claim`."""

from __future__ import annotations

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.handlers.lease import LeaseHandler
from mig_spawner.allocator.openapi.parameter import LIMIT, PAGE, QUEUE_CURSOR
from mig_spawner.allocator.queue.view import Viewer
from mig_spawner.wire.queue import ExplainDocument, QueueDocument


def viewer_of(handler: Handler) -> Viewer:
    """Who looks: names are for themselves and for those who see all."""
    return Viewer(handler.principal.person, handler.principal.sees_all)


class Queue(Handler):
    """Who waits, and why."""

    @allow(Role.SERVICE, Role.READ)
    @query(LIMIT, QUEUE_CURSOR)
    async def get(self) -> None:
        viewer, after, limit = viewer_of(self), self.value(QUEUE_CURSOR, None), self.value(LIMIT, PAGE)
        found: QueueDocument = await self.context.run(
            lambda: self.context.queue.queue(viewer, after=after, limit=limit)
        )
        self.answer(found)


class Explain(LeaseHandler):
    """Why a lease is where it is."""

    @allow(Role.SERVICE, Role.READ)
    async def get(self, lease_id: str) -> None:
        await self.read(lease_id)
        viewer = viewer_of(self)
        found: ExplainDocument = await self.context.run(lambda: self.context.queue.explain(lease_id, viewer))
        self.answer(found)


class Claim(LeaseHandler):
    """The holder is back."""

    @allow(Role.SERVICE, Role.RESERVE)
    async def post(self, lease_id: str) -> None:
        await self.read(lease_id)
        who = self.principal.who
        self.answer((await self.call(lambda: self.context.queue.claim(lease_id, who=who))).document)
