"""When those who wait will begin: an honest range, or the reason why nobody can tell.

The line is played twice, in its order: once as if everything ended as early as it may, once as late. What was agreed bounds both;
for what was not, leases that have ended here are asked: of those that had lasted as long already, how much longer did they last?
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from mig_spawner.domain.lease import Queued
from mig_spawner.domain.queue.board import Board
from mig_spawner.domain.queue.guard import Guard, Guards

FORESEEN: Final = 50
"""So many places of the line are foreseen; what comes behind depends on too much."""
ENOUGH: Final = 8
"""So many leases have to have lasted as long already to say how much longer one lasts."""
SHORT, LONG = 0.1, 0.9
"""The parts of those leases that were over by the early and the late end of a range."""

Range = tuple[timedelta, timedelta | None]
"""At least and at most so long; None: nobody knows."""


class History:
    """How long leases have been kept here."""

    def __init__(self, held_s: Iterable[float]) -> None:
        """`held_s`: how long each lease that has ended was held, seconds."""
        self._held_s = sorted(held_s)

    def remaining(self, age: timedelta) -> Range:
        """How much longer a lease of this age is kept, by those that were kept as long."""
        longer = self._held_s[bisect_right(self._held_s, age.total_seconds()) :]
        if len(longer) < ENOUGH:
            return timedelta(0), None
        early, late = (longer[int(part * (len(longer) - 1))] for part in (SHORT, LONG))
        return timedelta(seconds=early) - age, timedelta(seconds=late) - age


@dataclass(frozen=True, slots=True)
class Forecast:
    """When somebody who waits will begin.

    Attributes:
        latest: None if nobody can tell.
        unknown: of how many leases that have to end before nobody knows when they will.
    """

    earliest: datetime
    latest: datetime | None
    unknown: int = 0


def foresee(
    queue: Iterable[Queued],
    early: Board,
    late: Board,
    lasts: Callable[[Queued], Range],
    settle_after: timedelta,
    newcomers: Iterable[Queued] = (),
) -> dict[str, Forecast | None]:
    """Forecasts of the first in line and of newcomers, by `lease_id`; None where no GPU could serve one now.

    Args:
        early: the fleet if everything on it ends as early as it may; `late` if as late.
        lasts: how long somebody who waits will keep what is granted.
        newcomers: who may come, each alone behind the line. Of them nothing is foreseen where the line is too long.
    """
    guards = [Guards(board, settle_after, lookahead=FORESEEN) for board in (early, late)]
    found: dict[str, Forecast | None] = {}
    line = iter(queue)
    for lease in islice(line, FORESEEN):
        kept = [
            of.add(replace(lease, duration_s=None if lasting is None else lasting.total_seconds()))
            for of, lasting in zip(guards, lasts(lease), strict=True)
        ]
        found[lease.lease_id] = _forecast(kept)
    if next(line, None) is None:
        found |= {lease.lease_id: _forecast([of.look(lease) for of in guards]) for lease in newcomers}
    return found


def _forecast(kept: Sequence[Guard]) -> Forecast | None:
    first, last = (guard.kept and guard.kept[0] for guard in kept)
    if first is None or last is None:
        return None
    return Forecast(first.at, None if last.unknown else max(first.at, last.at), last.unknown)
