"""Waking long polls.

One task reads the revision of the ledger, at once after a change of our own and a few times a second for changes of another
replica. When it has moved, one read tells where every open lease and every node stands, and those who wait compare. So a change
costs one read, not one for each who waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from mig_spawner.allocator.store.base import Progress, Store
from mig_spawner.errors import StoreError

T = TypeVar("T")

log = logging.getLogger(__name__)

POLL_S: Final = 0.25


class Run(Protocol):
    """Runs a blocking call in a thread and returns what it returns."""

    async def __call__(self, function: Callable[[], T]) -> T: ...


class Changes:
    """Tells those who wait what has changed.

    Args:
        store: whose revision is watched.
        run: runs a blocking call in a thread.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self._progress: Progress | None = None
        self._poked = asyncio.Event()
        self._moved = asyncio.Condition()
        self._waiting = 0
        self._closed = False

    @property
    def revision(self) -> int:
        """The newest revision of the ledger that was seen while somebody waited."""
        return -1 if self._progress is None else self._progress.revision

    @property
    def closed(self) -> bool:
        """Whether the service ends, so that nobody should wait."""
        return self._closed

    def poke(self) -> None:
        """Something of ours may have changed: look now."""
        self._poked.set()

    async def wait(self, is_news: Callable[[Progress], bool], since: int, timeout: float) -> bool:
        """Wait until a progress newer than revision `since` is news.

        Returns:
            False when `timeout` seconds passed without any, or the service ends.
        """
        self._waiting += 1
        self.poke()
        try:
            async with asyncio.timeout(timeout), self._moved:
                await self._moved.wait_for(lambda: self._closed or self._has_news(is_news, since))
            return not self._closed
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    def _has_news(self, is_news: Callable[[Progress], bool], since: int) -> bool:
        return self._progress is not None and self._progress.revision > since and is_news(self._progress)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            if self._waiting:
                try:
                    await self._look()
                except StoreError as error:
                    log.warning("Long polls cannot be woken: %s", error)
            try:
                async with asyncio.timeout(POLL_S if self._waiting else None):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()

    async def _look(self) -> None:
        def read(known: int) -> Progress | None:
            if self._store.revision() == known:
                return None
            with self._store.reading() as tx:
                return tx.progress()

        known = self.revision
        progress = await self._run(lambda: read(known))
        if progress is not None:
            async with self._moved:
                self._progress = progress
                self._moved.notify_all()

    async def close(self) -> None:
        """Answer everybody who waits, now."""
        async with self._moved:
            self._closed = True
            self._moved.notify_all()
