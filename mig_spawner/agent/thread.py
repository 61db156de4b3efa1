"""The one thread in which a driver is called.

NVML calls block for seconds and changes must not overlap, so the event loop hands them over, one at a time. A call that has
begun always ends: whoever waits for it may be cancelled, the call is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mig_spawner.agent.driver.base import Driver

T = TypeVar("T")


class DriverThread:
    """A driver with its session and its thread. `open` begins the session, or begins it anew; use `close` once."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="driver")

    async def open(self) -> None:
        """Begin the session, if it has not begun. Raises `DriverError` if there is no usable driver."""
        await self.call(self.driver.open)

    async def call(self, work: Callable[..., T], *args: object) -> T:
        """The result of a piece of work with the driver. Cancelling gives up waiting, not the work."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor, work, *args))

    async def close(self) -> None:
        """End the session after the call that runs, and the thread."""
        await self.call(self.driver.close)
        self._executor.shutdown()
