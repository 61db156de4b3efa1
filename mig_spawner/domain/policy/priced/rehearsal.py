"""Synthetic traffic on GPUs of one kind, to see which of several worths serves a mix best.

Small and quick on purpose: states are numbers, GPUs with equal states are one heap, and the best state for a shape is the lowest
bit of an integer. `mig_spawner.planning` simulates whole fleets with rules and queues; this only compares.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from mig_spawner.domain.policy.priced.chart import Chart, Key
from mig_spawner.domain.policy.priced.packing import capacity, packings

LOAD: Final = 0.95
WARM_UP: Final = 0.2
SIGMA: Final = 1.5
"""Of the lognormal durations: most notebooks are short, some stay for days."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is rehearsed on.

    Attributes:
        gpus: how many of the kind there are.
        arrivals: requests for each seed.
    """

    gpus: int
    arrivals: int = 20_000
    seeds: tuple[int, ...] = (1, 2)


def rehearse(chart: Chart, worth: Mapping[Key, int], traffic: Traffic) -> float:
    """The part of the slice-time asked for that was accepted, 0 to 1, over all seeds."""
    stage = _Stage(chart, worth)
    asked = accepted = 0.0
    for seed in traffic.seeds:
        a, b = stage.play(seed, traffic)
        asked, accepted = asked + a, accepted + b
    return accepted / asked if asked else 1.0


class _Stage:
    def __init__(self, chart: Chart, worth: Mapping[Key, int]) -> None:
        self._chart = chart
        self._numbers = {key: number for number, key in enumerate(chart.keys)}
        value = [worth[key] for key in chart.keys]
        self._best: list[list[tuple[int, int]]] = []
        """By shape: the states with room for it, the best in front, and where it leads from there."""
        self._bit: list[list[int]] = [[0] * len(chart.shapes) for _ in chart.keys]
        """By state and shape: the bit of its place in that order; 0 where there is no room."""
        for shape in range(len(chart.shapes)):
            order = []
            for state, ways in enumerate(chart.grow):
                if ways[shape]:
                    after = max(ways[shape], key=lambda way: value[way])
                    order.append((value[state] - value[after], state, after))
            order.sort()
            self._best.append([(state, after) for _, state, after in order])
            for place, (_, state, _) in enumerate(order):
                self._bit[state][shape] = 1 << place

    def play(self, seed: int, traffic: Traffic) -> tuple[float, float]:
        """Slice-time asked for and accepted, after the warm-up."""
        dice = random.Random(seed)
        keys, shapes, count = self._chart.keys, self._chart.shapes, traffic.gpus
        state = [0] * count
        heaps: list[list[int]] = [[] for _ in keys]
        heaps[0] = list(range(count))
        heapify(heaps[0])
        present = [0] * len(keys)
        present[0] = count
        bits = list(self._bit[0])
        ends: list[tuple[float, int, int]] = []
        limits, total = [], 0.0
        for shape in shapes:
            total += shape.share
            limits.append(total)
        rate = LOAD * count * capacity(packings(self._chart.grid, shapes), [shape.share for shape in shapes])
        middle = -SIGMA * SIGMA / 2
        now = asked = accepted = 0.0

        def move(gpu: int, after: int) -> None:
            before = state[gpu]
            present[before] -= 1
            if not present[before]:
                for number, bit in enumerate(self._bit[before]):
                    bits[number] &= ~bit
            state[gpu] = after
            if not present[after]:
                for number, bit in enumerate(self._bit[after]):
                    bits[number] |= bit
            present[after] += 1
            heappush(heaps[after], gpu)

        for arrival in range(traffic.arrivals):
            now += dice.expovariate(rate)
            duration = dice.lognormvariate(middle, SIGMA)
            wanted = min(bisect(limits, dice.random() * total), len(shapes) - 1)
            while ends and ends[0][0] <= now:
                _, gpu, piece = heappop(ends)
                mask, heads = keys[state[gpu]]
                move(gpu, self._numbers[mask & ~piece, heads & ~piece])
            weight = shapes[wanted].size * duration if arrival >= WARM_UP * traffic.arrivals else 0.0
            asked += weight
            if bits[wanted]:
                best, after = self._best[wanted][(bits[wanted] & -bits[wanted]).bit_length() - 1]
                heap = heaps[best]
                while state[heap[0]] != best:  # it has moved on
                    heappop(heap)
                gpu = heap[0]
                accepted += weight
                move(gpu, after)
                heappush(ends, (now + duration, gpu, keys[after][0] & ~keys[best][0]))
        return asked, accepted
