"""Synthetic traffic: mixes of requests, arrivals by chance, durations of which most are short and some very long."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy import Demand
from mig_spawner.domain.policy.priced.chart import shapes_of
from mig_spawner.domain.policy.priced.packing import capacity, packings
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.call import Lesson, Stream
from mig_spawner.planning.trace import Arrival

HOUR: Final = 3600.0
SIGMA: Final = 1.5
"""Of the lognormal durations: with a mean of one hour half of the notebooks end within 20 minutes, and one in a hundred stays for
more than ten hours."""

SIX: Final = tuple(
    ProfileName.parse(name) for name in ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
)

Mix = Mapping[ProfileName, float]
"""The share of each profile in the requests."""


def mix_of(*weights: float) -> dict[ProfileName, float]:
    """A mix over the six plain profiles of an 80 GB GPU."""
    return dict(zip(SIX, weights, strict=True))


MIXES: Final[Mapping[str, Mix]] = {
    "uniform": mix_of(*[1 / 6] * 6),
    "skew-small": mix_of(0.30, 0.25, 0.20, 0.10, 0.10, 0.05),
    "skew-big": mix_of(0.05, 0.10, 0.10, 0.20, 0.25, 0.30),
    "bimodal": mix_of(0.30, 0.15, 0.05, 0.05, 0.15, 0.30),
    "notebook": mix_of(0.55, 0.12, 0.15, 0.10, 0.03, 0.05),
}
"""The first four after the MFI paper; `notebook` is ours."""


def held_out(number: int) -> dict[ProfileName, float]:
    """One of the mixes on which nothing was ever tuned: drawn evenly from all mixes (Dirichlet)."""
    dice = random.Random(f"held-out {number}")
    weights = [dice.expovariate(1.0) for _ in SIX]
    return mix_of(*(weight / sum(weights) for weight in weights))


def fits(fleet: Sequence[GPU], mix: Mix) -> float:
    """How many requests of a mix a fleet holds at once at best, by the packing bound: load 1.0.

    A fleet of one kind of GPU; of several kinds each holds the part of the mix that it offers.

    Raises:
        InvalidRequest: no GPU offers a profile of the mix.
    """
    total, demand = 0.0, Demand.of(mix)
    known: dict[int, float] = {}
    for gpu in fleet:
        key = id(gpu.profiles)
        if key not in known:
            offered = sum(part for name, part in demand.shares if gpu.profile(name) is not None)
            shapes = shapes_of(gpu, demand) if offered else ()
            known[key] = capacity(packings(gpu.grid, shapes), [s.share for s in shapes]) if shapes else 0.0
        total += known[key]
    if not total:
        raise InvalidRequest("No GPU of this fleet offers a profile of this mix.")
    return total


@dataclass(frozen=True, slots=True)
class Steady:
    """People who come and go.

    Attributes:
        rate: arrivals in a mean duration.
        span: how long, in mean durations.
        mean: the mean duration in seconds.
        mixes: what is asked for; with several the mix changes, each in turn for an equal part of the span.
        forgetful: durations are exponential: how long somebody has been there says nothing of how long he will stay.
    """

    rate: float
    span: float
    mixes: Sequence[Mix]
    mean: float = HOUR
    forgetful: bool = False

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """In order of time; the same for the same seed."""
        dice = random.Random(f"steady {seed}")
        draws = [_Draw(mix) for mix in self.mixes]
        middle = -SIGMA * SIGMA / 2
        now = 0.0
        while (now := now + dice.expovariate(self.rate)) < self.span:
            draw = draws[min(int(now / self.span * len(draws)), len(draws) - 1)]
            duration = dice.expovariate(1.0) if self.forgetful else dice.lognormvariate(middle, SIGMA)
            yield Arrival(now * self.mean, duration * self.mean, SliceRequest(draw(dice)))


@dataclass(frozen=True, slots=True)
class Filling:
    """People who come and never go, until what was asked for would be so many memory slices: the setting of the MFI paper."""

    slices: float
    sizes: Mapping[ProfileName, int]
    mix: Mix

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """One a second."""
        dice, draw, asked = random.Random(f"filling {seed}"), _Draw(self.mix), 0
        number = 0
        while True:
            name = draw(dice)
            asked += self.sizes[name]
            if asked > self.slices:
                return
            yield Arrival(float(number), inf, SliceRequest(name))
            number += 1


@dataclass(frozen=True, slots=True)
class Calls:
    """People who come one by one, and classes that come all at once, week after week.

    Attributes:
        hours: how long; it begins on a Monday at midnight.
    """

    streams: Sequence[Stream]
    lessons: Sequence[Lesson]
    hours: float

    def arrivals(self, seed: int) -> list[Arrival]:
        """In order of time."""
        dice, found = random.Random(f"calls {seed}"), []
        middle = -SIGMA * SIGMA / 2
        for stream in self.streams:
            now, request = 0.0, SliceRequest(stream.profile)
            while stream.per_hour and (now := now + dice.expovariate(stream.per_hour)) < self.hours:
                found.append(Arrival(now * HOUR, dice.lognormvariate(middle, SIGMA) * stream.hours * HOUR, request))
        for lesson in self.lessons:
            at = (lesson.day * 24 + lesson.begin / 60) * HOUR
            while at < self.hours * HOUR:
                one = Arrival(at, (lesson.end - lesson.begin) * 60.0, SliceRequest(lesson.profile))
                found += [one] * lesson.people
                at += 7 * 24 * HOUR
        return sorted(found, key=lambda arrival: arrival.at)


class _Draw:
    """One profile after the other, by the weights of a mix."""

    def __init__(self, mix: Mix) -> None:
        self._names = [name for name, weight in mix.items() if weight > 0]
        self._limits = list(accumulate(mix[name] for name in self._names))

    def __call__(self, dice: random.Random) -> ProfileName:
        return self._names[min(bisect(self._limits, dice.random() * self._limits[-1]), len(self._names) - 1)]
