"""`api/v1/webhooks…`: addresses that are told of leases, and what became of the deliveries."""

from __future__ import annotations

import re

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.openapi.parameter import DELIVERY_CURSOR, DELIVERY_STATE, LIMIT, PAGE
from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.webhook import WebhookRequest


class Webhooks(Handler):
    """All webhooks, and making one."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def get(self) -> None:
        self.answer(await self.context.run(self.context.webhooks.webhooks))

    @allow(Role.SERVICE, Role.ADMIN)
    async def post(self) -> None:
        request, who = self.parsed(WebhookRequest), self.principal.who
        self.answer(await self.context.run(lambda: self.context.webhooks.create(request, who=who)), status=201)


class Webhook(Handler):
    """Ending a webhook."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def delete(self, webhook_id: str) -> None:
        who = self.principal.who
        await self.context.run(lambda: self.context.webhooks.delete(webhook_id, who=who))
        self.set_status(204)
        self.finish()  # type: ignore[unused-awaitable]


class Deliveries(Handler):
    """What is on its way to a webhook, what arrived, and what was given up."""

    @allow(Role.SERVICE, Role.ADMIN)
    @query(DELIVERY_STATE, LIMIT, DELIVERY_CURSOR)
    async def get(self, webhook_id: str) -> None:
        state, before = self.value(DELIVERY_STATE, None), self.value(DELIVERY_CURSOR, None)
        limit = self.value(LIMIT, PAGE)
        webhooks = self.context.webhooks
        self.answer(
            await self.context.run(lambda: webhooks.deliveries(webhook_id, state=state, before=before, limit=limit))
        )


class Redeliver(Handler):
    """Beginning a delivery anew."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def post(self, webhook_id: str, number: str) -> None:
        if re.fullmatch(r"\d{1,18}", number, re.ASCII) is None:
            raise refusal(ProblemCode.NOT_FOUND, "There is no such delivery: its number is a whole number.")
        self.answer(await self.context.run(lambda: self.context.webhooks.redeliver(webhook_id, int(number))))
