"""Every state that instances can bring a GPU into, and the ways between them.

What is planned ahead needs no names and no engines: a `Shape` is a length and its starts, and profiles that differ in media
extensions alone have one shape. A state is where instances sit. There are some hundred on the eight-slice grid, fewer where
nobody asks for a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.domain.policy.demand import Demand
from mig_spawner.domain.profile import ProfileName

Key = tuple[int, int]
"""A state: `Layout.mask` and `Layout.heads`."""

MAX_STATES: Final = 20_000
"""More is not planned for. The grids known today have a few hundred."""


class Shape(NamedTuple):
    """How instances may sit, whatever they are called.

    Attributes:
        size: memory slices.
        starts: first memory slices, ascending.
        share: of the requests for this kind of GPU, 0 to 1.
    """

    size: int
    starts: tuple[int, ...]
    share: float


def shapes_of(gpu: GPU, demand: Demand) -> tuple[Shape, ...]:
    """The shapes that people ask of this kind of GPU, smallest first; their shares add up to 1."""
    parts: dict[tuple[int, tuple[int, ...]], int] = {}
    for profile, part in zip(gpu.profiles, demand.parts(gpu.profiles), strict=True):
        if part:
            form = (profile.size, tuple(sorted(profile.starts)))
            parts[form] = parts.get(form, 0) + part
    total = sum(parts.values())
    return tuple(Shape(size, starts, parts[size, starts] / total) for size, starts in sorted(parts))


@dataclass(frozen=True, slots=True)
class Chart:
    """The states of a kind of GPU.

    Attributes:
        grid: memory slices of the GPU.
        keys: the states; number 0 is the empty GPU.
        grow: by state and shape, the states that one more instance leads to, lowest start first.
        shrink: by state, the states that the end of one of its instances leads to, lowest slice first.
    """

    grid: int
    shapes: tuple[Shape, ...]
    keys: tuple[Key, ...]
    grow: tuple[tuple[tuple[int, ...], ...], ...]
    shrink: tuple[tuple[int, ...], ...]

    @property
    def instances(self) -> int:
        """The most instances that can be on one GPU at once."""
        return max(map(len, self.shrink))


@lru_cache(maxsize=32)
def stand_in(shapes: tuple[Shape, ...]) -> GPU:
    """A GPU that offers these shapes, under made-up names, and has engines for all of them."""
    profiles = (Profile(ProfileName(n + 1, 1), n, s.size, s.starts, 1, 0, 0) for n, s in enumerate(shapes))
    return GPU("", "", 0, 0, tuple(profiles))


@lru_cache(maxsize=32)
def chart(grid: int, shapes: tuple[Shape, ...]) -> Chart | None:
    """The chart of a kind of GPU; None if it had too many states to plan for."""
    gpu = stand_in(shapes)
    numbers: dict[Key, int] = {(0, 0): 0}
    layouts = [Layout(gpu)]
    grow: list[tuple[tuple[int, ...], ...]] = []
    for layout in layouts:  # grows as states are found
        ways = []
        for profile in gpu.profiles:
            found = []
            for start in layout.starts(profile):
                after = layout.with_instance(profile, start)
                key = (after.mask, after.heads)
                if key not in numbers:
                    numbers[key] = len(layouts)
                    layouts.append(after)
                found.append(numbers[key])
            ways.append(tuple(found))
        grow.append(tuple(ways))
        if len(layouts) > MAX_STATES:
            return None
    shrink = tuple(tuple(numbers[rest] for rest in _ends((layout.mask, layout.heads))) for layout in layouts)
    return Chart(grid, shapes, tuple(numbers), tuple(grow), shrink)


def _ends(key: Key) -> Sequence[Key]:
    """What is left when one of the instances ends."""
    return [(key[0] & ~mask, key[1] & ~mask) for mask in pieces(key)]


def pieces(key: Key) -> list[int]:
    """The instances of a state as masks, lowest first."""
    mask, heads = key
    found = []
    for start in range(heads.bit_length()):
        if heads >> start & 1:
            end = start + 1
            while mask >> end & 1 and not heads >> end & 1:
                end += 1
            found.append((1 << end) - (1 << start))
    return found


def merged(chart: Chart) -> tuple[int, ...]:
    """The class of each state. States are in one class if nothing that may happen tells them apart.

    That is exact (bisimulation): to have the halves of a GPU the other way round changes nothing, where no shape minds.
    """
    classes, count = [0] * len(chart.keys), 1
    while True:
        signatures: dict[object, int] = {}
        refined = []
        for state, ways in enumerate(chart.grow):
            reached = tuple(frozenset(classes[after] for after in after_shape) for after_shape in ways)
            ended = tuple(sorted(classes[after] for after in chart.shrink[state]))
            refined.append(signatures.setdefault((classes[state], reached, ended), len(signatures)))
        if len(signatures) == count:
            return tuple(refined)
        classes, count = refined, len(signatures)
