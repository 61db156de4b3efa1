"""Renewing a lease in the background, for as long as something else goes on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.wire.client import SyncAllocatorClient
from mig_spawner.wire.problem import ProblemCode

RENEW_S: Final = 60.0
"""The allocator waits five times as long before it misses a heartbeat."""


class Renewal(Thread):
    """Renews until it is ended.

    Args:
        tell: is told a sentence when the lease is lost.

    Attributes:
        lost: set when the lease has ended. An allocator that is away, or does not know it, has not said so.
    """

    def __init__(
        self, client: SyncAllocatorClient, lease_id: str, tell: Callable[[str], None], *, every_s: float = RENEW_S
    ) -> None:
        super().__init__(name=f"renew-{lease_id}", daemon=True)
        self.lost = Event()
        self._client = client
        self._lease_id = lease_id
        self._tell = tell
        self._every_s = every_s
        self._over = Event()

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._client.renew(self._lease_id)
            except AllocatorUnavailable:
                continue
            except AllocatorRefused as error:
                if error.code == ProblemCode.CONFLICT:
                    self._tell(str(error))
                    self.lost.set()
                    return

    def end(self) -> None:
        """Renew no more. A renewal under way is not waited for: to release a lease and to renew it does no harm in any order."""
        self._over.set()
