"""What the agent saw when it looked last, for those who ask it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mig_spawner.wire.node import GPUDocument, UsageDocument


@dataclass(frozen=True, slots=True)
class Sight:
    """What the agent saw when it looked last. Immutable: the loop replaces it, the web threads read it.

    Attributes:
        problem: why nothing is touched here, a sentence; empty if it may be.
        driver: whether there is one.
    """

    gpus: tuple[GPUDocument, ...] = ()
    usage: tuple[UsageDocument, ...] = ()
    problem: str = ""
    driver: bool = True


class Board:
    """Where the loop leaves what it saw, for those who ask."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._answered: float | None = None
        self.sight = Sight()

    def saw(self, sight: Sight) -> None:
        """The agent has looked."""
        self.sight, self._looked = sight, self._clock()

    def answered(self) -> None:
        """The allocator has answered."""
        self._answered = self._clock()

    @property
    def looked_s(self) -> float:
        """How long ago the agent has looked, seconds."""
        return self._clock() - self._looked

    @property
    def answered_s(self) -> float | None:
        """How long ago the allocator has answered, seconds; None for never."""
        return None if self._answered is None else self._clock() - self._answered
