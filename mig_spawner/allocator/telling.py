"""What tells others of this process's ledger: streams, webhooks, and the timers that go with them."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final

from mig_spawner.allocator import loops
from mig_spawner.allocator.changes import Changes, Run
from mig_spawner.allocator.event.feed import Feed
from mig_spawner.allocator.event.news import forget
from mig_spawner.allocator.event.trait import EventTraits
from mig_spawner.allocator.service import Desk
from mig_spawner.allocator.webhook.address import origins_of
from mig_spawner.allocator.webhook.delivery import Postman
from mig_spawner.allocator.webhook.service import WebhookService

LOOK_S: Final = 1.0
FORGET_S: Final = 600.0


class Telling:
    """Feed, webhooks and postman, as the traits want them."""

    def __init__(self, traits: EventTraits, desk: Desk, changes: Changes, run: Run) -> None:
        origins = origins_of(traits.webhook_origins)
        self.feed = Feed(desk, changes, run, limit=traits.event_streams)
        self.webhooks = WebhookService(desk.store, origins)
        self.postman = Postman(desk.store, run, origins)
        self._kept = timedelta(hours=traits.events_kept)
        self._desk = desk
        self._run = run

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """To be run until cancelled."""
        return [
            loops.every(LOOK_S, self.postman.step, "webhooks"),
            loops.every(FORGET_S, self.forget, "forgetting of events"),
        ]

    async def forget(self) -> None:
        """Drop events that are older than they are kept."""
        await self._run(lambda: forget(self._desk.store, self._kept))

    async def close(self) -> None:
        await self.postman.close()
