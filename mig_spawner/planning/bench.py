"""One scenario with one seed: the arrivals on which setups are tried, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.layout import NamedLayout
from mig_spawner.domain.policy import UNKNOWN, Ranking, Rules
from mig_spawner.domain.policy.priced.rehearsal import Traffic
from mig_spawner.domain.quota import QuotaRule
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.bound import Repack
from mig_spawner.planning.declared import PER_NODE, cuts_of
from mig_spawner.planning.fleet import dynamic, fleet_of, static
from mig_spawner.planning.kept import Kept, digest, digest_of_fleet, digest_of_trace
from mig_spawner.planning.optimum import optimum
from mig_spawner.planning.part import MEASURES, Part
from mig_spawner.planning.rule import RULES
from mig_spawner.planning.scenario import Scenario, demand_of
from mig_spawner.planning.setup import REPLAN, Knows, Setup, follower, ranking_for, replanner
from mig_spawner.planning.simulation import Course, run
from mig_spawner.planning.trace import Trace

BATCHES: Final = 10
"""Parts of the time of a trace: there is one run of it, and its parts give the intervals."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long it may take.

    Attributes:
        seeds: runs of each setup on each scenario.
        rehearsed: arrivals in the rehearsals of `auto`.
        replan: arrivals between two plans of setups that estimate the demand.
        bound: whether to work out the bound.
    """

    seeds: int = 10
    rehearsed: int = Traffic(1).arrivals
    replan: int = REPLAN
    bound: bool = True


@dataclass(frozen=True, slots=True)
class House:
    """The rules that hold for everybody, whatever is tried.

    Attributes:
        quotas: how much somebody may have.
        apart: the groups that never share a GPU.
        layouts: that somebody declared; setups call them by name. Every node has them.
        per_node: GPUs of a node.
    """

    quotas: tuple[QuotaRule, ...] = ()
    apart: Rules = ()
    layouts: tuple[NamedLayout, ...] = ()
    per_node: int = PER_NODE

    def fleet(self, gpus: Sequence[GPU], layout: str) -> list[GPUState]:
        """These GPUs under a layout by name."""
        own = next((one for one in self.layouts if one.name == layout), None)
        return fleet_of(gpus, layout) if own is None else static(gpus, cuts_of(own, gpus, per_node=self.per_node)[0])


class Bench:
    """What is tried on one trace."""

    def __init__(self, scenario: Scenario, seed: int, effort: Effort, house: House, kept: Kept) -> None:
        self.name = f"{scenario.name}, seed {seed}" if scenario.seeded else scenario.name
        self._scenario = scenario
        self._trace: Trace = scenario.arrivals(seed)
        self._effort = effort
        self._house = house
        self._kept = kept
        self._depends = digest_of_trace(self._trace), scenario.warm_up, scenario.end, scenario.moves, list(MEASURES)

    def run(self, setup: Setup) -> list[Part]:
        """What comes of one setup: of a scenario one part, of a trace `BATCHES`."""
        scenario, effort, house = self._scenario, self._effort, self._house
        demand = scenario.told or demand_of(self._trace, scenario.gpus)
        fleet = house.fleet(scenario.gpus, setup.layout)

        def made() -> list[object]:
            ranking, replan = self._knowing(setup)
            course = Course(
                ranking=ranking,
                demand=demand,
                rule=RULES[setup.rule],
                quotas=house.quotas,
                apart=house.apart,
                warm_up=scenario.warm_up,
                end=inf if scenario.end is None else scenario.end,
                parts=1 if scenario.seeded else BATCHES,
                replan=replan,
            )
            return [Part.of(outcome).as_json() for outcome in run(self._trace, fleet, course)]

        pace = effort.rehearsed, effort.replan if setup.knows is Knows.ESTIMATE else None
        depends = digest(*self._depends, digest_of_fleet(fleet), demand, setup, pace, house.quotas, house.apart)
        return [Part(**part) for part in self._kept.recall(f"{self.name}: {setup}", depends, made)]

    def _knowing(self, setup: Setup) -> tuple[Ranking, Callable[[int], Ranking | None] | None]:
        """The ranking at first, and what tells when it is to be another."""
        scenario, trace, effort = self._scenario, self._trace, self._effort
        gpus, rehearsed = scenario.gpus, effort.rehearsed
        if setup.knows is Knows.DEMAND:
            if scenario.moves:
                (_, demand), *moves = scenario.moves
                then = follower(setup.policy, gpus, trace, moves, rehearsed=rehearsed)
                return ranking_for(setup.policy, gpus, demand, rehearsed=rehearsed), then
            return ranking_for(setup.policy, gpus, scenario.told or demand_of(trace, gpus), rehearsed=rehearsed), None
        ranking = ranking_for(setup.policy, gpus, UNKNOWN, rehearsed=rehearsed)
        if setup.knows is Knows.NOTHING:
            return ranking, None
        return ranking, replanner(setup.policy, gpus, trace, every=effort.replan, rehearsed=rehearsed)

    def bound(self) -> list[float]:
        """The accepted slices if everything could be moved; empty where that cannot be said."""
        scenario = self._scenario

        def made() -> list[float]:
            try:
                asked, accepted = Repack(scenario.gpus).accepted(self._trace, warm_up=scenario.warm_up)
            except InvalidRequest:
                return []
            return [accepted / asked if asked else 1.0]

        depends = digest(*self._depends, digest_of_fleet(dynamic(scenario.gpus)), "the bound")
        found: list[float] = self._kept.recall(f"{self.name}: the bound", depends, made)
        return found


def best_possible(scenario: Scenario, kept: Kept) -> float | None:
    """What the best decisions would accept in the long run; None where that cannot be worked out."""
    demand, rate = scenario.told, scenario.forgetful
    if demand is None or rate is None:
        return None
    depends = digest(digest_of_fleet(dynamic(scenario.gpus)), demand, rate, "the best possible")
    best: float | None = kept.recall(
        f"{scenario.name}: the best possible", depends, lambda: optimum(scenario.gpus, demand, rate)
    )
    return best
