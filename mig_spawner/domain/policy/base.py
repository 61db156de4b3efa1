"""What a policy is: a name, and a way to rank the places that are legal.

A rank has two parts. `gpu` decides between GPUs, `start` between the starts of one GPU. Kept apart they say what the literature
says in two sentences, "the fullest GPU; on it the best index", and GPUs of equal rank stay equal, so that the order of the
fleet decides between them and every replica decides alike.

Ranks are integers. Sums of floating-point shares would depend on the order of adding, and make of equal GPUs unequal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from mig_spawner.domain.gpu import GPU, Engines, Layout, Profile
from mig_spawner.domain.policy.demand import UNKNOWN, Demand

FINENESS: Final = 5040
"""A whole GPU in the units of a rank; a multiple of the known grids of 4, 8 and 12 slices, so that nothing is rounded on them."""


class Rank(NamedTuple):
    """How bad a place is; the least wins.

    Attributes:
        gpu: compared between GPUs. Equal ones go by the order of the fleet.
        start: compared between starts of one GPU whose `gpu` is equal. Equal ones go by the lower start.
    """

    gpu: int
    start: int = 0


Ranking = Callable[[Layout, Profile, int], Rank]
"""Rank of making an instance of a profile at a free start of a GPU that is taken so.

It must be pure and depend on the GPU's profiles, its instances and the engines in use alone: it is asked once for each such
state, and the answer holds for every GPU in it.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A way to place, known by name. It is a `Ranking` itself: the one for an unknown demand.

    Attributes:
        name: as in `--AllocatorApp.policy`.
        summary: what it does, one sentence for people who choose.
        make: the ranking for a demand. Policies that do not look at demand give the same one for all.
        heeds_demand: whether the demand changes anything.
    """

    name: str
    summary: str
    make: Callable[[Demand], Ranking] = field(repr=False)
    heeds_demand: bool = False

    def ranking(self, demand: Demand = UNKNOWN) -> Ranking:
        """The ranking for this demand; for an equal demand the very same one, so that what was worked out once is used again."""
        return _made(self, demand if self.heeds_demand else UNKNOWN)

    def __call__(self, layout: Layout, profile: Profile, start: int) -> Rank:
        return self.ranking()(layout, profile, start)


@lru_cache(maxsize=64)
def _made(policy: Policy, demand: Demand) -> Ranking:
    return policy.make(demand)


def per_gpu(slices: int, gpu: GPU, degree: int = 1) -> int:
    """An amount of memory slices (or of their squares: degree 2) as a part of the GPU, comparable between grids."""
    return int(slices * FINENESS**degree // gpu.grid**degree)


class Potential:
    """A ranking by how much a placement raises a number that belongs to the state of a GPU.

    Both fragmentation measures and the share-weighted one are of this kind: value of the layout afterwards less value before.
    """

    def __init__(self, value: Callable[[Layout], int], degree: int = 1) -> None:
        """`value` is in memory slices of the GPU to this degree, times whatever is the same for all GPUs."""
        self._value = value
        self._degree = degree
        self._known: dict[int, tuple[GPU, dict[tuple[int, int, Engines], int]]] = {}

    def __call__(self, layout: Layout, profile: Profile, start: int) -> Rank:
        raised = self.value(layout.with_instance(profile, start)) - self.value(layout)
        return Rank(per_gpu(raised, layout.gpu, self._degree), start)

    def value(self, layout: Layout) -> int:
        """The number of this state; worked out once for as long as the GPU is asked for."""
        known = self._known.get(id(layout.gpu))
        if known is None:
            if len(self._known) >= _GPUS_KNOWN:
                self._known.clear()
            # The GPU is kept beside the numbers: its id stays its own as long as it lives.
            known = self._known[id(layout.gpu)] = (layout.gpu, {})
        key = (layout.mask, layout.heads, layout.engines)
        value = known[1].get(key)
        if value is None:
            if len(known[1]) >= _STATES_KNOWN:
                known[1].clear()
            value = known[1][key] = self._value(layout)
        return value


_GPUS_KNOWN: Final = 64
_STATES_KNOWN: Final = 1 << 16
