"""`healthz`, `readyz` and `metrics`: open to all, at the root as well as under the prefix."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST

from mig_spawner.allocator.handlers.base import Handler
from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.problem import ProblemCode


class Healthz(Handler):
    """The process lives."""

    def get(self) -> None:
        self.finish("ok\n")  # type: ignore[unused-awaitable]


class Readyz(Handler):
    """The database answers, and the service does not end."""

    async def get(self) -> None:
        if self.context.changes.closed:
            raise refusal(ProblemCode.NOT_READY, "The allocator is stopping.")
        await self.context.run(self.context.desk.store.revision)
        self.finish("ready\n")  # type: ignore[unused-awaitable]


class MetricsHandler(Handler):
    """What Prometheus scrapes."""

    async def get(self) -> None:
        body = await self.context.run(lambda: self.context.metrics.exposition(self.context.desk))
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        self.finish(body)  # type: ignore[unused-awaitable]
