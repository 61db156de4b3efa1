"""Letting time pass: arrivals come, are placed, wait or are refused, and what runs comes to its end.

What may be granted, where, and in which order who waits is served: all of that is asked of `mig_spawner.domain`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.policy import UNKNOWN, Demand, Ranking, Rules
from mig_spawner.domain.queue import STARVATION_AFTER
from mig_spawner.domain.quota import QuotaRule
from mig_spawner.domain.request import Request
from mig_spawner.planning.quota import Quotas
from mig_spawner.planning.stage import Stage, share_of
from mig_spawner.planning.trace import Arrival, Trace


@dataclass(slots=True)
class Outcome:
    """What came of one run, after its warm-up. Amounts of GPU are in GPUs, times in seconds.

    Attributes:
        asked, accepted: requests.
        asked_time, accepted_time: part of a GPU x duration, summed: big and long requests weigh as much as they use.
        asked_size, accepted_size: part of a GPU, summed: big requests weigh more, long ones do not.
        waits: of those who were served, in seconds; 0 for at once.
        longest: the longest wait, of those who gave up or still wait as well, in seconds.
        starved: how many waited for longer than `STARVATION_AFTER`.
        refused_by_profile, refused_by_group: how many, by what they asked for and by whom.
        refused_why: how many, by a word: `full`, `quota`, `gave up` or `still waits`.
        span: how long was measured.
        active_time: GPUs in use x seconds.
        taken_time: GPUs' worth of memory slices in use x seconds.
        stranded_time: GPUs' worth of memory slices that were free and of no use for the next request, as expected, x seconds.
    """

    asked: int = 0
    accepted: int = 0
    asked_time: float = 0.0
    accepted_time: float = 0.0
    asked_size: float = 0.0
    accepted_size: float = 0.0
    waits: list[float] = field(default_factory=list)
    longest: float = 0.0
    starved: int = 0
    refused_by_profile: Counter[str] = field(default_factory=Counter)
    refused_by_group: Counter[str] = field(default_factory=Counter)
    refused_why: Counter[str] = field(default_factory=Counter)
    span: float = 0.0
    active_time: float = 0.0
    taken_time: float = 0.0
    stranded_time: float = 0.0

    def waited(self, seconds: float) -> None:
        """Somebody's wait is over."""
        self.longest = max(self.longest, seconds)
        self.starved += seconds > STARVATION_AFTER.total_seconds()

    @property
    def wasted_gpu_hours(self) -> float:
        """GPU-hours of free memory slices on GPUs that were in use: what nobody could have had as a whole GPU."""
        return max(self.active_time - self.taken_time, 0.0) / 3600


Placed = Callable[[int, Decision | None], None]
"""Told by the number of an arrival where it was placed, once it is, or that it was not."""


@dataclass(slots=True)
class Waiter:
    """An arrival that is not served yet."""

    number: int
    arrival: Arrival


class Rule(Protocol):
    """Who of those who are there is served now."""

    waits: bool
    """Whether anybody waits. If not, who is not served at once is refused."""

    def serve(
        self, stage: Stage, waiting: Sequence[Waiter], now: float, allowed: Callable[[Waiter], bool]
    ) -> Iterator[tuple[Waiter, Decision]]:
        """Each of those who are served now, in turn. What is given out is on the stage before the next one is asked for.

        Args:
            waiting: in the order in which they came.
            allowed: whether somebody's quota lets him have it now; who waits for his quota is passed over.
        """


class Refuse:
    """Nobody waits."""

    waits = False

    def serve(
        self, stage: Stage, waiting: Sequence[Waiter], now: float, allowed: Callable[[Waiter], bool]
    ) -> Iterator[tuple[Waiter, Decision]]:
        del now
        for waiter in waiting:
            arrival = waiter.arrival
            decision = stage.choose(arrival.request, arrival.groups) if allowed(waiter) else None
            if decision is not None:
                yield waiter, decision


@dataclass(frozen=True, slots=True)
class Course:
    """How a run goes.

    Attributes:
        ranking: the policy for its demand.
        demand: for measuring fragmentation.
        rule: makes the rule for who waits, and who is served first; each run has its own.
        quotas: how much somebody may have, as a menu says it.
        apart: the groups that never share a GPU.
        warm_up: seconds at the beginning that do not count.
        end: seconds at which the run ends.
        parts: into how many parts of equal length the time that counts is divided.
        replan: asked before each arrival, with its number; a ranking if the fleet is to be ranked anew.
    """

    ranking: Ranking
    demand: Demand = UNKNOWN
    rule: Callable[[], Rule] = Refuse
    quotas: tuple[QuotaRule, ...] = ()
    apart: Rules = ()
    warm_up: float = 0.0
    end: float = inf
    parts: int = 1
    replan: Callable[[int], Ranking | None] | None = None


def run(trace: Trace, fleet: Sequence[GPUState], course: Course, *, placed: Placed | None = None) -> list[Outcome]:
    """Play a trace on a fleet: what came of it, part by part of the time that counts."""
    end = min(course.end, trace[-1].at if trace else 0.0) if course.end == inf else course.end
    play = _Play(fleet, course, end, placed)
    for number, arrival in enumerate(trace):
        if arrival.at > end:
            break
        play.to(arrival.at)
        play.arrive(Waiter(number, arrival))
    return play.finish()


class _Play:
    """One run: what is to come, who waits, what runs."""

    def __init__(self, fleet: Sequence[GPUState], course: Course, end: float, placed: Placed | None) -> None:
        self._course = course
        self._rule = course.rule()
        self._end = end
        length = max(end - course.warm_up, 0.0) / course.parts
        self._borders = [*(course.warm_up + (n + 1) * length for n in range(course.parts - 1)), inf]
        """Where each part of the time ends."""
        self._part_now = 0
        self._stage = Stage(fleet, course.ranking, course.demand, apart=course.apart)
        self._quotas = Quotas(course.quotas, fleet)
        self._placed = placed
        self._gpus = list({id(state.gpu.profiles): state.gpu for state in fleet}.values())
        self._shares: dict[Request, float] = {}
        self._waiting: dict[int, Waiter] = {}
        self._running: dict[int, tuple[Arrival, Decision]] = {}
        self._events: list[tuple[float, int, bool]] = []
        """When, the number of the arrival, and whether that is when it gives up waiting."""
        self._now = 0.0
        self._outcomes = [Outcome() for _ in range(course.parts)]

    def to(self, at: float) -> None:
        """Let everything happen that is due by then."""
        while self._events and self._events[0][0] <= at:
            when, number, gives_up = heappop(self._events)
            self._pass(when)
            if not gives_up:
                _, decision = self._running.pop(number)
                self._quotas.stop(number, when)
                self._stage.stop(decision)
                self._serve()
            elif (waiter := self._waiting.pop(number, None)) is not None:
                self._refuse(waiter, "gave up")
                self._serve()
        self._pass(at)

    def arrive(self, waiter: Waiter) -> None:
        arrival, course = waiter.arrival, self._course
        if course.replan is not None and (ranking := course.replan(waiter.number)) is not None:
            self._stage.rank_by(ranking)
        if (outcome := self._part(arrival)) is not None:
            outcome.asked += 1
            outcome.asked_size += self._size(arrival)
            outcome.asked_time += self._weight(arrival)
        self._waiting[waiter.number] = waiter
        self._serve()
        if waiter.number not in self._waiting:
            return
        if not self._rule.waits or arrival.wait <= 0:
            del self._waiting[waiter.number]
            self._refuse(waiter, "full" if self._allowed(waiter) else "quota")
        elif arrival.wait < inf:
            heappush(self._events, (arrival.at + arrival.wait, waiter.number, True))

    def finish(self) -> list[Outcome]:
        """The end of the run; who waits still is not served any more."""
        self.to(self._end)
        for waiter in self._waiting.values():
            self._refuse(waiter, "still waits")
        return self._outcomes

    def _serve(self) -> None:
        if not self._waiting:
            return
        waiting = list(self._waiting.values())
        for waiter, decision in self._rule.serve(self._stage, waiting, self._now, self._allowed):
            del self._waiting[waiter.number]
            arrival = waiter.arrival
            self._stage.start(decision, self._now + arrival.duration, arrival.groups)
            self._running[waiter.number] = arrival, decision
            self._quotas.start(waiter.number, arrival, decision, self._now)
            if arrival.duration < inf:
                heappush(self._events, (self._now + arrival.duration, waiter.number, False))
            if (outcome := self._part(arrival)) is not None:
                outcome.accepted += 1
                outcome.accepted_size += self._size(arrival)
                outcome.accepted_time += self._weight(arrival)
                outcome.waits.append(self._now - arrival.at)
                outcome.waited(self._now - arrival.at)
            if self._placed is not None:
                self._placed(waiter.number, decision)

    def _allowed(self, waiter: Waiter) -> bool:
        return self._quotas.allows(waiter.number, waiter.arrival, self._now)

    def _refuse(self, waiter: Waiter, why: str) -> None:
        if self._placed is not None:
            self._placed(waiter.number, None)
        if (outcome := self._part(waiter.arrival)) is not None:
            outcome.refused_by_profile[str(waiter.arrival.request)] += 1
            outcome.refused_by_group[waiter.arrival.group] += 1
            outcome.refused_why[why] += 1
            outcome.waited(self._now - waiter.arrival.at)

    def _pass(self, at: float) -> None:
        """Time passes on a stage that does not change."""
        since = max(self._now, self._course.warm_up)
        self._now = at
        while since < at:
            until = min(at, self._borders[self._part_now])
            span, outcome = until - since, self._outcomes[self._part_now]
            outcome.span += span
            outcome.active_time += self._stage.active * span
            outcome.taken_time += self._stage.taken * span
            outcome.stranded_time += self._stage.stranded * span
            since = until
            self._part_now += until == self._borders[self._part_now]

    def _part(self, arrival: Arrival) -> Outcome | None:
        """What an arrival counts for; None during the warm-up."""
        if arrival.at < self._course.warm_up:
            return None
        return self._outcomes[bisect_right(self._borders, arrival.at)]

    def _size(self, arrival: Arrival) -> float:
        return share_of(arrival.request, self._gpus, self._shares)

    def _weight(self, arrival: Arrival) -> float:
        return self._size(arrival) * (arrival.duration if arrival.duration < inf else 1.0)
