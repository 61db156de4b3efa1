"""The bound: a fleet on which everything that runs could be moved at every arrival, even in fractions.

No hub can do that, for a notebook cannot be moved. It says how much of a gap is left to close. (It takes whatever fits; who says no to a
large request now to have room for many small ones soon may do better in a short run.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy import Demand
from mig_spawner.domain.policy.priced.chart import Shape, shapes_of
from mig_spawner.domain.policy.priced.packing import capacity, packings
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.trace import Arrival


class Repack:
    """So many GPUs of one kind, whose instances may be moved at will.

    A request is accepted if, with everything else, it is within what the packings of the GPUs allow on average. That is a little
    more than whole GPUs can do.
    """

    def __init__(self, gpus: Sequence[GPU]) -> None:
        """
        Raises:
            InvalidRequest: the GPUs are of several kinds; there is no such bound for them.
        """
        if len({gpu.profiles for gpu in gpus}) != 1:
            raise InvalidRequest("The bound is for GPUs of one kind.")
        gpu = gpus[0]
        names = [p.name for p in gpu.profiles if not p.name.suffix]
        self._shapes = shapes_of(gpu, Demand.of(dict.fromkeys(names, 1.0)))
        self._packings = packings(gpu.grid, self._shapes)
        self._count = len(gpus)
        self._number = {p.name: _shape(self._shapes, p.size, p.starts) for p in gpu.profiles}
        self.part = [shape.size / gpu.grid for shape in self._shapes]
        self._held = [0] * len(self._shapes)
        self._fits: list[tuple[int, ...]] = []

    def accepted(self, trace: Iterable[Arrival], *, warm_up: float = 0.0) -> tuple[float, float]:
        """The slice-time (part of a GPU x seconds) that is asked for after the warm-up, and what is accepted of it."""
        ends: list[tuple[float, int]] = []
        asked = accepted = 0.0
        for arrival in trace:
            while ends and ends[0][0] <= arrival.at:
                self._held[heappop(ends)[1]] -= 1
            if not isinstance(arrival.request, SliceRequest):
                raise InvalidRequest("The bound is for requests of profiles.")
            shape = self._number[arrival.request.profile]
            weight = self.part[shape] * arrival.duration if arrival.at >= warm_up else 0.0
            asked += weight
            self._held[shape] += 1
            if self._fit():
                accepted += weight
                heappush(ends, (arrival.at + arrival.duration, shape))
            else:
                self._held[shape] -= 1
        return asked, accepted

    def _fit(self) -> bool:
        held = tuple(self._held)
        if any(all(a <= b for a, b in zip(held, known, strict=True)) for known in self._fits):
            return True
        room = capacity(self._packings, held) * self._count
        if room < 1 - 1e-9:
            return False
        self._fits.append(tuple(int(h * room + 1e-9) for h in held))
        del self._fits[:-_REMEMBERED]
        return True


_REMEMBERED = 50


def _shape(shapes: Sequence[Shape], size: int, starts: tuple[int, ...]) -> int:
    return next(n for n, s in enumerate(shapes) if (s.size, s.starts) == (size, tuple(sorted(starts))))
