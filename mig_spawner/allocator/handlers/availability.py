"""`api/v1/availability` and the tickets with which a spawn form reads it."""

from __future__ import annotations

import hashlib

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.openapi.parameter import WITHOUT
from mig_spawner.wire.availability import Availability as AvailabilityDocument
from mig_spawner.wire.availability import TicketRequest


class Availability(Handler):
    """What is free now. A spawn form polls it from the hub's page: no cookie, a bearer ticket, and an ETag to spare the wire."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        # Open to every origin since it is of use only with a token, which no browser adds by itself.
        self.set_header("Access-Control-Allow-Origin", "*")
        self.set_header("Access-Control-Expose-Headers", "ETag")
        self.set_header("Cache-Control", "private, no-cache")

    def options(self) -> None:
        self.set_header("Access-Control-Allow-Methods", "GET")
        self.set_header("Access-Control-Allow-Headers", "Authorization, If-None-Match")
        self.set_header("Access-Control-Max-Age", "600")
        self.set_status(204)

    @allow(Role.SERVICE, Role.TICKET, Role.READ)
    @query(WITHOUT)
    async def get(self) -> None:
        without = self.value(WITHOUT, "")
        document: AvailabilityDocument = await self.context.run(lambda: self.context.leases.availability(without))
        content = document.model_dump_json(exclude={"as_of"}).encode()
        self.set_header("ETag", f'"{hashlib.sha256(content).hexdigest()[:20]}"')
        if self.check_etag_header():
            self.set_status(304)
            return
        self.answer(document)


class TicketHandler(Handler):
    """Tickets for one person's browser."""

    @allow(Role.SERVICE)
    async def post(self) -> None:
        self.answer(self.context.auth.tickets.issue(self.parsed(TicketRequest).user_name))
