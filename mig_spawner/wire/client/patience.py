"""When a call is tried again, and when the allocator is left in peace."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mig_spawner.errors import AllocatorUnavailable


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long one call is tried, and from when on nothing is tried at all for a while.

    Attributes:
        attempts: how often a call is made at most; 1 for no second try. Only what does no harm when it is done twice is tried again.
        first_s: the first pause, seconds; each later one is twice as long, up to `longest_s`. A pause is shortened by up to half by
            chance, so that a class whose allocator restarted does not return in one moment.
        budget_s: no further attempt once a call has taken so long, on top of what a long poll waits.
        break_after: so many misses in a row, over all calls, and calls fail at once for `break_s` seconds; then one is let through
            to see. None to try always.
    """

    attempts: int = 4
    first_s: float = 0.25
    longest_s: float = 5.0
    budget_s: float = 20.0
    break_after: int | None = 8
    break_s: float = 5.0

    def pause(self, attempt: int, chance: float) -> float:
        """Seconds before the attempt after number `attempt` (from 0); `chance` is from 0 to 1."""
        return min(self.first_s * 2.0**attempt, self.longest_s) * (1 - chance / 2)


ONCE: Final = Patience(attempts=1, break_after=None)
"""For callers that have a rule of their own: every call is made once, at once."""


class Breaker:
    """Counts misses in a row. Who shares a client shares what is known of its allocator; no lock: a miscount does no harm."""

    def __init__(self, url: str, patience: Patience, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._patience = patience
        self._clock = clock
        self._misses = 0
        self._closed_until = 0.0

    def admit(self) -> None:
        """Let a call through, or raise `AllocatorUnavailable` at once. While it is open, one call in each `break_s` passes."""
        after = self._patience.break_after
        if after is None or self._misses < after:
            return
        left = self._closed_until - self._clock()
        if left > 0:
            raise AllocatorUnavailable(
                f"The GPU allocator at {self._url} has not answered {self._misses} times in a row. It is asked again in {left:.0f} s."
            )
        self._hold()

    def heard(self) -> None:
        """It answered, whatever it said."""
        self._misses = 0

    def missed(self) -> None:
        """It did not answer, or said that it cannot serve."""
        self._misses += 1
        self._hold()

    def _hold(self) -> None:
        self._closed_until = self._clock() + self._patience.break_s * (1 - random.random() / 5)  # noqa: S311  # no secret
