"""The best that anybody could do on a handful of GPUs, worked out to the last digit.

A decision problem on the states of all of them together, for people who come by chance and stay for exponential times, so that how long
somebody has been there says nothing. Whoever decides best knows the mix, may choose among all places, and may say no. It is solved by
uniformised value iteration. Nothing that places on a real fleet can work like this: two A100 have some five thousand states, and each
one more has a hundred times as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy import Demand
from mig_spawner.domain.policy.priced.chart import Chart, chart, merged, shapes_of

MAX_STATES: Final = 60_000
EXACT: Final = 1e-5
"""Of the slice-time that is asked for: so sure is the figure."""

State = tuple[int, ...]
"""The classes of the GPUs, ascending: which GPU is in which does not matter."""


def optimum(gpus: Sequence[GPU], demand: Demand, rate: float) -> float | None:
    """The accepted part of the slice-time that is asked for; None where there are too many states, or GPUs of several kinds.

    Args:
        rate: arrivals in a mean duration.
    """
    if len({gpu.profiles for gpu in gpus}) != 1:
        return None
    shapes = shapes_of(gpus[0], demand)
    ways = chart(gpus[0].grid, shapes)
    problem = None if ways is None else _problem(ways, len(gpus))
    if ways is None or problem is None:
        return None
    rates = [rate * shape.share for shape in shapes]
    rewards = [shape.size / ways.grid for shape in shapes]
    asked = sum(a * b for a, b in zip(rates, rewards, strict=True))
    return _gain(problem, rates, rewards, EXACT * asked) / asked


class _Problem(NamedTuple):
    """By state: where each shape can lead, and where the end of each instance leads, with how many of them lead there."""

    grow: list[list[tuple[int, ...]]]
    shrink: list[list[tuple[int, int]]]
    instances: int


def _problem(ways: Chart, count: int) -> _Problem | None:
    classes = merged(ways)
    first = {c: state for state, c in reversed(list(enumerate(classes)))}
    grown = {c: [sorted({classes[s] for s in after}) for after in ways.grow[state]] for c, state in first.items()}
    ended = {c: [classes[s] for s in ways.shrink[state]] for c, state in first.items()}
    empty: State = (classes[0],) * count
    numbers: dict[State, int] = {empty: 0}
    states, problem = [empty], _Problem([], [], count * ways.instances)

    def number(state: State, out: int, into: int) -> int:
        rest = list(state)
        rest.remove(out)
        after = tuple(sorted([*rest, into]))
        if after not in numbers:
            numbers[after] = len(states)
            states.append(after)
        return numbers[after]

    for state in states:  # grows as states are found
        if len(states) > MAX_STATES:
            return None
        present = sorted(set(state))
        problem.grow.append(
            [tuple({number(state, c, into) for c in present for into in grown[c][s]}) for s in range(len(ways.shapes))]
        )
        ends = Counter(number(state, c, into) for c in state for into in ended[c])
        problem.shrink.append(sorted(ends.items()))
    return problem


def _gain(problem: _Problem, rates: Sequence[float], rewards: Sequence[float], exact: float) -> float:
    """What is earned in a mean duration in the long run, by who decides best."""
    step = 1.0 / (sum(rates) + problem.instances)
    values = [0.0] * len(problem.grow)
    while True:
        look, fresh = values.__getitem__, []
        for value, grow, shrink in zip(values, problem.grow, problem.shrink, strict=True):
            more = 0.0
            for rate, reward, after in zip(rates, rewards, grow, strict=True):
                if after:
                    better = reward + max(map(look, after)) - value
                    if better > 0:
                        more += rate * better
            for state, times in shrink:
                more += times * (values[state] - value)
            fresh.append(value + step * more)
        changes = [b - a for a, b in zip(values, fresh, strict=True)]
        least, most = min(changes) / step, max(changes) / step
        if most - least < exact:
            return (least + most) / 2
        values = [value - fresh[0] for value in fresh]
