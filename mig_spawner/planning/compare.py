"""Running setups side by side on the same arrivals, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mig_spawner.planning.bench import Bench, Effort, House, best_possible
from mig_spawner.planning.kept import Kept
from mig_spawner.planning.measure import Figure, figure
from mig_spawner.planning.part import MEASURES, OF_TIME, Part, total
from mig_spawner.planning.scenario import Scenario
from mig_spawner.planning.setup import Setup


@dataclass(frozen=True, slots=True)
class Row:
    """One setup on one scenario.

    Attributes:
        figures: by the names of `MEASURES`.
        gain: accepted slices less those of the first setup of this scenario, run by run; None for the first.
        gain_by_size: accepted sizes less those of the first. Where large ones stay as long as small ones and nobody knows how long, it
            comes to the same in the long run, and says so sooner: no single long stay counts for much.
        refused: by reason; by profile; by group. Over all runs.
    """

    scenario: str
    setup: Setup
    figures: Mapping[str, Figure]
    gain: Figure | None
    gain_by_size: Figure | None
    refused_why: Mapping[str, int]
    refused_by_profile: Mapping[str, int]
    refused_by_group: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Total:
    """What one setup gained over several scenarios, by size.

    Attributes:
        gain: on average, with the interval of the scenarios.
        worst, least: where it gained least, and how much.
        worse: the scenarios in which it lost more than its interval.
    """

    setup: Setup
    gain: Figure
    worst: str
    least: Figure
    worse: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that was run.

    Attributes:
        bounds: by scenario the accepted slices if everything could be moved, where that can be said.
        optima: by scenario the most that anybody could do in the long run, where that can be worked out.
        seeds: how many runs each figure is of; 1 for traces, whose intervals are those of parts of the time.
    """

    rows: tuple[Row, ...]
    bounds: Mapping[str, Figure]
    optima: Mapping[str, float]
    seeds: int

    def totals(self) -> list[Total]:
        """How each setup but the first did over all scenarios."""
        _, *others = dict.fromkeys(row.setup for row in self.rows)
        found = []
        for setup in others:
            rows = [row for row in self.rows if row.setup == setup]
            gains = {row.scenario: row.gain_by_size for row in rows if row.gain_by_size is not None}
            worst = min(gains, key=lambda name: gains[name].mean)
            # One run alone says nothing of chance.
            worse = [name for name, g in gains.items() if g.plus_minus is not None and g.mean + g.plus_minus < 0]
            found.append(
                Total(setup, figure([gain.mean for gain in gains.values()]), worst, gains[worst], tuple(worse))
            )
        return found


def compare(
    scenarios: Sequence[Scenario],
    setups: Sequence[Setup],
    effort: Effort | None = None,
    *,
    house: House | None = None,
    kept: Kept | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run every setup on every scenario.

    Args:
        house: the rules that hold for all of them.
        kept: runs that were done before and need not be done again; those that are done are added.
        step: told before each run what comes next.
    """
    effort, house, kept = effort or Effort(), house or House(), kept or Kept()
    rows: list[Row] = []
    bounds: dict[str, Figure] = {}
    optima: dict[str, float] = {}
    for scenario in scenarios:
        parts: dict[Setup, list[Part]] = {setup: [] for setup in setups}
        most: list[float] = []
        # One seed after the other, so that of a comparison that is broken off the first seeds are whole.
        for seed in range(1, effort.seeds + 1) if scenario.seeded else (1,):
            bench = Bench(scenario, seed, effort, house, kept)
            for setup in parts:
                step(f"{bench.name}: {setup}")
                parts[setup] += bench.run(setup)
            if effort.bound and scenario.seeded:
                step(f"{bench.name}: the bound")
                most += bench.bound()
        first: Sequence[Part] | None = None
        for setup in setups:
            rows.append(_row(scenario.name, setup, parts[setup], first))
            first = first or parts[setup]
        if most:
            bounds[scenario.name] = figure(most)
        if effort.bound and scenario.forgetful is not None:
            step(f"{scenario.name}: the best possible")
            best = best_possible(scenario, kept)
            if best is not None:
                optima[scenario.name] = best
    return Comparison(tuple(rows), bounds, optima, effort.seeds)


def steps(scenarios: Sequence[Scenario], setups: Sequence[Setup], effort: Effort) -> int:
    """How often `compare` will call its `step`."""
    count = 0
    for scenario in scenarios:
        seeds = effort.seeds if scenario.seeded else 1
        count += seeds * (len(set(setups)) + (effort.bound and scenario.seeded))
        count += effort.bound and scenario.forgetful is not None
    return count


def _row(scenario: str, setup: Setup, parts: Sequence[Part], first: Sequence[Part] | None) -> Row:
    # A quiet part of a trace says nothing of waits and acceptance.
    busy = [part for part in parts if part.asked] or parts[:1]
    figures = {name: figure([part.figures[name] for part in (parts if name in OF_TIME else busy)]) for name in MEASURES}

    def gain(name: str) -> Figure | None:
        if first is None:
            return None
        return figure([a.figures[name] - b.figures[name] for a, b in zip(parts, first, strict=True)])

    return Row(
        scenario,
        setup,
        figures,
        gain("accepted_slices"),
        gain("accepted_sizes"),
        total(part.refused_why for part in parts),
        total(part.refused_by_profile for part in parts),
        total(part.refused_by_group for part in parts),
    )
