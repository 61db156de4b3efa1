"""What a state of a GPU is worth, from a small decision problem that is solved ahead.

One GPU among many is choosy: it sees several times its fair share of the traffic and may pass on any request, since another
GPU would take it. In the long run it takes no more than its fair share of each shape: a price per shape, deducted from the
reward of a request, sees to that. What the state is worth to such a GPU is how ready it is for what comes.

The method: uniformised value iteration, with the long-run distribution of states under the decisions of the moment and the prices
that follow from it worked out alongside; then, under the average of those prices, value iteration alone. Source: our study, see
`docs/placement.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mig_spawner.domain.policy.priced.chart import Chart, Key, merged
from mig_spawner.domain.policy.priced.packing import capacity, packings

LOAD: Final = 0.9
"""The traffic that is planned for, as part of what would just fit."""


@dataclass(frozen=True, slots=True)
class Choosiness:
    """How much of the traffic the choosy GPU sees.

    Attributes:
        times: its fair share, so many times.
        patience: a shape that is rarer comes at least once in so many mean durations; None for as rare as it is.
    """

    times: float
    patience: float | None = None


def worth(chart: Chart, choosiness: Choosiness, *, sweeps: int = 1000, settling: int = 500) -> dict[Key, float]:
    """What each state is worth, in parts of the grid times the mean duration; the empty GPU is worth 0."""
    problem = _Problem(chart, choosiness)
    prices = problem.priced(sweeps)
    problem.settle(prices, settling)
    first = problem.values[problem.classes[0]]
    return {key: problem.values[c] - first for key, c in zip(chart.keys, problem.classes, strict=True)}


class _Problem:
    """The decision problem on classes of states. Time counts in mean durations, reward in parts of the grid."""

    def __init__(self, chart: Chart, choosiness: Choosiness) -> None:
        self.classes = merged(chart)
        shares = [shape.share for shape in chart.shapes]
        fits = capacity(packings(chart.grid, chart.shapes), shares)
        self.fair = [LOAD * fits * share for share in shares]
        least = 0.0 if choosiness.patience is None else 1.0 / choosiness.patience
        self.rates = [max(choosiness.times * rate, least) for rate in self.fair]
        self.rewards = [shape.size / chart.grid for shape in chart.shapes]
        step = 1.0 / (sum(self.rates) + chart.instances)
        self.arrival = [rate * step for rate in self.rates]
        states = {c: state for state, c in reversed(list(enumerate(self.classes)))}
        self.grow = [self._ways(chart, states[c]) for c in range(len(states))]
        self.ends: list[tuple[tuple[int, float], ...]] = [
            tuple((self.classes[after], step) for after in chart.shrink[states[c]]) for c in range(len(states))
        ]
        self.values = [0.0] * len(states)

    def _ways(self, chart: Chart, state: int) -> list[tuple[int, tuple[int, ...]]]:
        """The shapes that fit a state, and the classes that each can lead to."""
        return [
            (number, tuple(sorted({self.classes[after] for after in ways})))
            for number, ways in enumerate(chart.grow[state])
            if ways
        ]

    def priced(self, sweeps: int) -> list[float]:
        """The prices at which no shape is taken more often than is fair."""
        count = len(self.rates)
        prices, total = [0.0] * count, [0.0] * count
        spread = [0.0] * len(self.values)
        spread[self.classes[0]] = 1.0
        for sweep in range(sweeps):
            taken = [0.0] * count
            spread = self._sweep(prices, spread, taken)
            pace = _PACE / (1 + sweep / _SLOWING)
            for number, fair in enumerate(self.fair):
                excess = taken[number] * self.rates[number] / fair - 1
                price = prices[number] + pace * self.rewards[number] * excess
                prices[number] = min(max(price, 0.0), 2 * self.rewards[number])
                if sweep >= sweeps // 2:
                    total[number] += prices[number]
        return [price / (sweeps - sweeps // 2) for price in total]

    def settle(self, prices: list[float], sweeps: int) -> None:
        for _ in range(sweeps):
            self._sweep(prices, None, None)

    def _sweep(self, prices: list[float], spread: list[float] | None, taken: list[float] | None) -> list[float]:
        """One step of time: new values, and where GPUs that were spread so are then.

        `taken` is added, by shape, the part of the GPUs that would take one.
        """
        values = self.values
        moved = [0.0] * len(values) if spread is not None else []
        fresh = []
        arrival, rewards = self.arrival, self.rewards
        for c, value in enumerate(values):
            here = spread[c] if spread is not None else 0.0
            stays = here
            gain = 0.0
            for number, ways in self.grow[c]:
                if len(ways) == 1:
                    best = ways[0]
                    after = values[best]
                else:
                    after, best = max([(values[way], way) for way in ways])
                better = rewards[number] - prices[number] + after - value
                if better > 0:
                    part = arrival[number]
                    gain += part * better
                    if taken is not None:
                        taken[number] += here
                        moved[best] += here * part
                        stays -= here * part
            for after_end, part in self.ends[c]:
                gain += part * (values[after_end] - value)
                if spread is not None:
                    moved[after_end] += here * part
                    stays -= here * part
            if spread is not None:
                moved[c] += stays
            fresh.append(value + gain)
        base = fresh[self.classes[0]]
        self.values = [value - base for value in fresh]
        return moved


_PACE: Final = 0.05
_SLOWING: Final = 100.0
