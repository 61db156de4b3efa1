"""How often somebody may ask: a bucket for each caller that fills by and by. In memory, for this replica."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from traitlets import HasTraits, Integer

MOST: Final = 10_000
"""Callers that are remembered; who was not seen for longest is forgotten first, and then has a full bucket."""


class RateTraits(HasTraits):
    """How often."""

    acquire_limit = Integer(
        300,
        help="""How often a minute somebody may ask for a lease, counted for each person; 0 for no limit.

        Who asks more often is told for how long to wait. Each replica of the allocator counts for itself.
        """,
    ).tag(config=True)


class Rate:
    """So many calls a minute for each caller, at once or spread.

    Args:
        per_minute: 0 for no limit.
        clock: seconds that only grow.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_for(self, caller: str) -> float:
        """Count a call. Zero if it is allowed; else it is not counted, and in so many seconds the next one will be."""
        if not self._per_minute:
            return 0.0
        now = self._clock()
        left, seen = self._buckets.pop(caller, (float(self._per_minute), now))
        left = min(left + (now - seen) * self._per_minute / 60, float(self._per_minute))
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) * 60 / self._per_minute
