"""How many instances it takes to keep a promise to those who come.

The sums are the classical ones for lines of people (Erlang): requests come by chance, durations may be what they like. So many
are there at once on average: rate x duration. How many instances that takes depends on what is promised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.call import DAYS, MOST, Lesson, Stream, clock
from mig_spawner.planning.scenario import profile_of
from mig_spawner.planning.trace import Trace


@dataclass(frozen=True, slots=True)
class Target:
    """What is promised.

    Attributes:
        acceptance: of the requests of each profile so many find a place at once, 0 to 1; None if people wait instead.
        p90_wait_h: nine of ten wait no longer, hours; None if nobody waits.
    """

    acceptance: float | None = 0.99
    p90_wait_h: float | None = None

    def __post_init__(self) -> None:
        if (self.acceptance is None) == (self.p90_wait_h is None):
            raise InvalidRequest("Promise an acceptance or a wait, one of the two.")
        if self.acceptance is not None and not 0 < self.acceptance < 1:
            raise InvalidRequest("An acceptance is more than 0 and less than 1, such as 0.99.")
        if self.p90_wait_h is not None and self.p90_wait_h < 0:
            raise InvalidRequest("A wait is not negative.")

    def kept_by(self, instances: int, stream: Stream) -> bool:
        """Whether so many instances keep it, by Erlang's formulas."""
        load = stream.at_once
        if load == 0:
            return True
        if self.acceptance is not None:
            return refused(instances, load) <= 1 - self.acceptance
        wait = self.p90_wait_h or 0.0
        return instances > load and waiting(instances, load) * exp(-(instances - load) * wait / stream.hours) <= 0.1

    def __str__(self) -> str:
        if self.acceptance is not None:
            return f"at least {self.acceptance:.1%} of each profile are served at once"
        return f"nine of ten wait at most {(self.p90_wait_h or 0) * 60:g} min"


def refused(instances: int, load: float) -> float:
    """Erlang's B: the part of the requests that finds all instances taken, if nobody waits."""
    part = 1.0
    for number in range(1, instances + 1):
        part = load * part / (number + load * part)
    return part


def waiting(instances: int, load: float) -> float:
    """Erlang's C: the part of the requests that has to wait, if all wait; for more instances than load."""
    part = refused(instances, load)
    return part / (1 - load / instances * (1 - part))


def instances_for(stream: Stream, target: Target) -> int:
    """The fewest instances of its profile that keep the promise to a stream.

    Raises:
        InvalidRequest: more than anybody has.
    """
    for number in range(MOST):
        if target.kept_by(number, stream):
            return number
    raise InvalidRequest(f"No number of instances keeps the promise for {stream}.")


Need = Mapping[ProfileName, int]
"""So many instances of each profile at once."""


def streams_of(trace: Trace, gpus: Sequence[GPU]) -> list[Stream]:
    """What a trace says of the requests to come: as many in an hour, and as long, as there."""
    kinds = list({id(gpu.profiles): gpu for gpu in gpus}.values())
    hours = max(trace[-1].at / 3600, 1.0) if trace else 1.0
    durations: dict[ProfileName, list[float]] = defaultdict(list)
    for arrival in trace:
        name = profile_of(arrival.request, kinds)
        if name is not None:
            durations[name].append(arrival.duration / 3600)
    return [Stream(name, len(some) / hours, sum(some) / len(some)) for name, some in sorted(durations.items())]


def base_need(streams: Iterable[Stream], target: Target) -> dict[ProfileName, int]:
    """The instances that all streams together take, at any time: streams of one profile share theirs."""
    merged: dict[ProfileName, list[Stream]] = defaultdict(list)
    for stream in streams:
        merged[stream.profile].append(stream)
    need = {}
    for name, some in sorted(merged.items()):
        rate = sum(stream.per_hour for stream in some)
        load = sum(stream.at_once for stream in some)
        need[name] = instances_for(Stream(name, rate, load / rate if rate else 0.0), target)
    return need


def moments(lessons: Sequence[Lesson]) -> list[tuple[str, list[Lesson]]]:
    """The times of the week at which classes meet: when, and which. At every other time there are fewer."""
    found: dict[tuple[int, ...], tuple[str, list[Lesson]]] = {}
    for lesson in lessons:
        there = [n for n, o in enumerate(lessons) if o.day == lesson.day and o.begin <= lesson.begin < o.end]
        name = f"{DAYS[lesson.day].title()} {clock(lesson.begin)}"
        found.setdefault(tuple(there), (name, [lessons[n] for n in there]))
    return list(found.values())


def added(base: Need, lessons: Iterable[Lesson]) -> dict[ProfileName, int]:
    """What is needed while these classes meet."""
    need = dict(base)
    for lesson in lessons:
        need[lesson.profile] = need.get(lesson.profile, 0) + lesson.people
    return need


def highest(needs: Iterable[Need]) -> dict[ProfileName, int]:
    """What is needed of each profile at its busiest time."""
    most: dict[ProfileName, int] = {}
    for need in needs:
        for name, count in need.items():
            most[name] = max(most.get(name, 0), count)
    return most
