"""The timers of the service. Each calls one step again and again; what a step does stands elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mig_spawner.errors import MigSpawnerError

log = logging.getLogger(__name__)


async def every(seconds: float, step: Callable[[], Awaitable[object]], name: str) -> None:
    """Run a step now and then again `seconds` after each end, until cancelled. A step that fails is logged and tried again."""
    while True:
        try:
            await step()
        except MigSpawnerError as error:
            log.warning("%s: %s", name, error)
        except Exception:
            log.exception("%s failed", name)
        await asyncio.sleep(seconds)
