"""Running setups side by side on the same arrivals, and what comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy import UNKNOWN, Rules
from mig_spawner.domain.policy.priced.rehearsal import Traffic
from mig_spawner.domain.quota import QuotaRule
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.bound import Repack
from mig_spawner.planning.fleet import fleet_of
from mig_spawner.planning.measure import Figure, figure, quantile
from mig_spawner.planning.rule import RULES
from mig_spawner.planning.scenario import Scenario, demand_of
from mig_spawner.planning.setup import REPLAN, Setup, ranking_for, replanner
from mig_spawner.planning.simulation import Course, Outcome, run
from mig_spawner.planning.trace import Trace

BATCHES: Final = 10

MEASURES: Final[Mapping[str, str]] = {
    "accepted_slices": "accepted part of the slice-time that was asked for",
    "accepted_requests": "accepted part of the requests",
    "wait_p50_s": "half of those who were served waited no longer, seconds",
    "wait_p90_s": "nine of ten who were served waited no longer, seconds",
    "wait_longest_s": "the longest wait, of those who were not served as well, seconds",
    "starved_requests": "part of the requests that waited longer than half an hour, after which a GPU may be earmarked",
    "active_gpus": "GPUs in use, on average over time",
    "stranded_gpus": "GPUs' worth of free memory slices of no use for the next request, on average over time",
    "wasted_gpu_hours": "GPU-hours of free memory slices on GPUs in use",
}
"""What is measured, and what it says."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setup on one scenario.

    Attributes:
        figures: by the names of `MEASURES`.
        gain: accepted slices less those of the first setup of this scenario, run by run; None for the first.
        refused: by reason; by profile; by group. Over all runs.
    """

    scenario: str
    setup: Setup
    figures: Mapping[str, Figure]
    gain: Figure | None
    refused_why: Mapping[str, int]
    refused_by_profile: Mapping[str, int]
    refused_by_group: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that was run.

    Attributes:
        bounds: by scenario the accepted slices if everything could be moved, where that can be said.
        seeds: how many runs each figure is of; 1 for traces, whose intervals are those of parts of the time.
    """

    rows: tuple[Row, ...]
    bounds: Mapping[str, Figure]
    seeds: int


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


def compare(
    scenarios: Sequence[Scenario],
    setups: Sequence[Setup],
    effort: Effort = Effort(),
    *,
    quotas: tuple[QuotaRule, ...] = (),
    apart: Rules = (),
    fleets: Mapping[str, Sequence[GPUState]] | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run every setup on every scenario.

    Args:
        quotas: how much somebody may have.
        apart: the groups that never share a GPU.
        fleets: GPUs under layouts that have no name of ours, by the name that setups call them.
        step: told after each run what comes next.
    """
    rows: list[Row] = []
    bounds: dict[str, Figure] = {}
    for scenario in scenarios:
        seeds = range(1, effort.seeds + 1) if scenario.seeded else range(1, 2)
        traces = [scenario.arrivals(seed) for seed in seeds]
        first: list[float] | None = None
        for setup in setups:
            step(f"{scenario.name}: {setup}")
            parts = [
                part for trace in traces for part in _run(scenario, setup, trace, effort, quotas, apart, fleets or {})
            ]
            slices = [_slices(part) for part in parts]
            rows.append(_row(scenario.name, setup, parts, first))
            first = first or slices
        if effort.bound and scenario.seeded:
            step(f"{scenario.name}: the bound")
            bound = _bound(scenario, traces)
            if bound is not None:
                bounds[scenario.name] = bound
    return Comparison(tuple(rows), bounds, effort.seeds)


def steps(scenarios: Sequence[Scenario], setups: Sequence[Setup], effort: Effort) -> int:
    """How often `compare` will call its `step`."""
    return sum(len(setups) + (effort.bound and scenario.seeded) for scenario in scenarios)


def _run(
    scenario: Scenario,
    setup: Setup,
    trace: Trace,
    effort: Effort,
    quotas: tuple[QuotaRule, ...],
    apart: Rules,
    fleets: Mapping[str, Sequence[GPUState]],
) -> list[Outcome]:
    demand = scenario.told or demand_of(trace, scenario.gpus)
    fleet = fleets.get(setup.layout) or fleet_of(scenario.gpus, setup.layout)
    replan = None
    if setup.online:
        replan = replanner(setup.policy, scenario.gpus, trace, every=effort.replan, rehearsed=effort.rehearsed)
        ranking = ranking_for(setup.policy, scenario.gpus, UNKNOWN, rehearsed=effort.rehearsed)
    else:
        ranking = ranking_for(setup.policy, scenario.gpus, demand, rehearsed=effort.rehearsed)
    course = Course(
        ranking=ranking,
        demand=demand,
        rule=RULES[setup.rule],
        quotas=quotas,
        apart=apart,
        warm_up=scenario.warm_up,
        end=inf if scenario.end is None else scenario.end,
        parts=1 if scenario.seeded else BATCHES,
        replan=replan,
    )
    return run(trace, fleet, course)


def _slices(outcome: Outcome) -> float:
    return outcome.accepted_time / outcome.asked_time if outcome.asked_time else 1.0


def _row(scenario: str, setup: Setup, parts: Sequence[Outcome], first: Sequence[float] | None) -> Row:
    # A quiet part of a trace says nothing of waits and acceptance.
    busy = [part for part in parts if part.asked] or parts[:1]
    figures = {
        "accepted_slices": figure([_slices(part) for part in busy]),
        "accepted_requests": figure([part.accepted / part.asked if part.asked else 1.0 for part in busy]),
        "wait_p50_s": figure([quantile(part.waits, 0.5) for part in busy]),
        "wait_p90_s": figure([quantile(part.waits, 0.9) for part in busy]),
        "wait_longest_s": figure([part.longest for part in busy]),
        "starved_requests": figure([part.starved / part.asked if part.asked else 0.0 for part in busy]),
        "active_gpus": figure([_mean(part.active_time, part.span) for part in parts]),
        "stranded_gpus": figure([_mean(part.stranded_time, part.span) for part in parts]),
        "wasted_gpu_hours": figure([part.wasted_gpu_hours for part in parts]),
    }
    gain = None
    if first is not None:
        gain = figure([_slices(part) - other for part, other in zip(parts, first, strict=True)])
    return Row(
        scenario,
        setup,
        figures,
        gain,
        dict(sorted(_total(part.refused_why for part in parts).items())),
        dict(sorted(_total(part.refused_by_profile for part in parts).items())),
        dict(sorted(_total(part.refused_by_group for part in parts).items())),
    )


def _mean(total: float, span: float) -> float:
    return total / span if span else 0.0


def _total(counters: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total += counter
    return total


def _bound(scenario: Scenario, traces: Sequence[Trace]) -> Figure | None:
    try:
        repack = [Repack(scenario.gpus).accepted(trace, warm_up=scenario.warm_up) for trace in traces]
    except InvalidRequest:
        return None
    return figure([accepted / asked if asked else 1.0 for asked, accepted in repack])
