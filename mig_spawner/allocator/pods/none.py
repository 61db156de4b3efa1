"""No pod watch: heartbeats and processes alone tell that a holder lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mig_spawner.allocator.pods.base import PodListing


class NoPods:
    """Delivers nothing."""

    watches = False

    async def run(self, deliver: Callable[[PodListing], Awaitable[None]]) -> None:
        """Return at once."""
