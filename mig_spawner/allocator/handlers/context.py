"""What handlers are given."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from jinja2 import Environment

from mig_spawner.allocator.auth import Auth
from mig_spawner.allocator.changes import Changes, Run
from mig_spawner.allocator.event.feed import Feed
from mig_spawner.allocator.menu.source import MenuSource
from mig_spawner.allocator.metrics import Metrics
from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.page.service import PageService
from mig_spawner.allocator.queue.service import QueueService
from mig_spawner.allocator.rate import Rate
from mig_spawner.allocator.reshape.service import ReshapeService
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.webhook.service import WebhookService


class Traffic:
    """Counts the requests that run, so that the end can wait for theirs."""

    def __init__(self) -> None:
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def begin(self) -> None:
        self._running += 1
        self._quiet.clear()

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no request runs."""
        await self._quiet.wait()


@dataclass(frozen=True)
class Context:
    """The parts that handlers speak to.

    Attributes:
        prefix: the service prefix, with a slash at both ends.
        run: for every call of a service.
    """

    prefix: str
    desk: Desk
    leases: LeaseService
    queue: QueueService
    nodes: NodeService
    reshapes: ReshapeService
    menu: MenuSource
    pages: PageService
    rate: Rate
    auth: Auth
    changes: Changes
    feed: Feed
    webhooks: WebhookService
    metrics: Metrics
    templates: Environment
    run: Run
    traffic: Traffic
