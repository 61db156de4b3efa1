"""How many requests of a mix one GPU can carry at best, if everything could be moved at will.

The bound of every policy: a linear programme over the ways to cut a GPU. Load 1.0 is the demand that just fits by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from mig_spawner.domain.policy.priced.chart import Shape


@lru_cache(maxsize=64)
def packings(grid: int, shapes: tuple[Shape, ...]) -> tuple[tuple[int, ...], ...]:
    """How many instances of each shape fit beside each other, as counts to which nothing can be added."""
    found: set[tuple[int, ...]] = set()
    ways: dict[int, set[tuple[int, ...]]] = {0: {(0,) * len(shapes)}}
    for start in range(grid + 1):
        for counts in ways.pop(start, ()):
            ways.setdefault(start + 1, set()).add(counts)
            found.add(counts)
            for number, shape in enumerate(shapes):
                if start in shape.starts:
                    more = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
                    ways.setdefault(start + shape.size, set()).add(more)
    for rest in ways.values():
        found |= rest
    return tuple(sorted(c for c in found if not any(_adds(o, c) for o in found)))


def _adds(other: tuple[int, ...], counts: tuple[int, ...]) -> bool:
    return other != counts and all(a >= b for a, b in zip(other, counts, strict=True))


def capacity(packings: Sequence[tuple[int, ...]], shares: Sequence[float]) -> float:
    """How many requests of this mix one GPU holds at once, on average over many GPUs, each cut as is best for all.

    The greatest L for which some average of the packings has at least L x share of each shape. By duality 1 / L is the greatest
    worth of a request, sum of share x price (see `prices`).
    """
    return 1.0 / prices(packings, shares)[0]


def prices(packings: Sequence[tuple[int, ...]], amounts: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """What these amounts are worth at best, and at which prices, if no packing may be worth more than 1: the GPUs they take at least.

    By the simplex method, which starts at prices of zero.
    """
    width = len(amounts)
    rows = [[float(count) for count in counts] + [1.0] for counts in packings]
    goal = [-float(amount) for amount in amounts] + [0.0]
    # Prices are numbered from 0 on, behind them the slacks of the packings: those at zero, and those that the rows say.
    zero, basis = list(range(width)), list(range(width, width + len(rows)))
    while helpful := [(zero[column], column) for column in range(width) if goal[column] < -_SMALL]:
        # Bland's rule, so that it ends: of those that help, and of those that limit it, the one with the lowest number.
        _, column = min(helpful)
        limits = [(r[-1] / r[column], basis[n], n) for n, r in enumerate(rows) if r[column] > _SMALL]
        _, _, pivot = min(limits)
        _exchange(rows, goal, pivot, column)
        zero[column], basis[pivot] = basis[pivot], zero[column]
    found = [0.0] * width
    for name, row in zip(basis, rows, strict=True):
        if name < width:
            found[name] = row[-1]
    return goal[-1], tuple(found)


def _exchange(rows: list[list[float]], goal: list[float], pivot: int, column: int) -> None:
    """One step: the price of this column enters, the slack of this row leaves and takes its place."""
    lead = rows[pivot]
    factor = 1.0 / lead[column]
    lead[column] = 1.0
    lead[:] = [value * factor for value in lead]
    for row in [*(r for n, r in enumerate(rows) if n != pivot), goal]:
        times = row[column]
        if times:
            row[column] = 0.0
            row[:] = [value - times * other for value, other in zip(row, lead, strict=True)]


_SMALL = 1e-12
