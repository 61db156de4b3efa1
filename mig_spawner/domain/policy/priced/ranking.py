"""Deciding by the worth of states: the place that costs least of it.

`Worths` answers for every layout, also for those that were not planned for: what a foreign instance, an admin's cut or an
unknown remnant makes of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.domain.policy.base import Rank, Ranking
from mig_spawner.domain.policy.demand import Demand
from mig_spawner.domain.policy.priced.chart import Key, shapes_of
from mig_spawner.domain.policy.priced.plan import Plan, candidate, kind_of
from mig_spawner.domain.policy.share import share_weighted

BASE: Final = "share-weighted"
"""What stands in for a kind of GPU that no plan knows: a closed formula, at once."""


class Worths:
    """What the states of one kind of GPU are worth, 0 to `RANGE`."""

    def __init__(self, worth: Mapping[Key, int]) -> None:
        self._worth = dict(worth)
        by_mask: dict[int, list[int]] = {}
        for (mask, _), value in worth.items():
            by_mask.setdefault(mask, []).append(value)
        self._by_mask = {mask: sum(values) // len(values) for mask, values in by_mask.items()}

    def of(self, layout: Layout) -> int:
        """The worth of a state. Of an unplanned one: the mean of those with the same slices taken, or with the fewest besides."""
        value = self._worth.get((layout.mask, layout.heads))
        if value is not None:
            return value
        mask = layout.mask
        if mask not in self._by_mask:
            above = [other for other in self._by_mask if other & mask == mask]
            if not above:
                return 0
            mask = min(above, key=lambda other: (other.bit_count(), other))
        return self._by_mask[mask]


class WorthRanking:
    """The least loss of worth, between GPUs of all kinds and between starts."""

    def __init__(self, find: Callable[[GPU], Mapping[Key, int]], otherwise: Ranking) -> None:
        """`find` gives the worths for a kind of GPU; where that is empty, `otherwise` ranks."""
        self._find = find
        self._otherwise = otherwise
        self._known: dict[str, Worths | None] = {}

    def __call__(self, layout: Layout, profile: Profile, start: int) -> Rank:
        kind = kind_of(layout.gpu)
        if kind not in self._known:
            found = self._find(layout.gpu)
            self._known[kind] = Worths(found) if found else None
        worths = self._known[kind]
        if worths is None:
            return self._otherwise(layout, profile, start)
        return Rank(worths.of(layout) - worths.of(layout.with_instance(profile, start)), start)


def by_formula(name: str, demand: Demand) -> WorthRanking:
    """The worths of one candidate of `plan.CANDIDATES`, worked out for each kind of GPU when it is first met."""
    return WorthRanking(lambda gpu: candidate(name, gpu.grid, shapes_of(gpu, demand)), share_weighted(demand))


def priced(demand: Demand) -> WorthRanking:
    """PRICED: the worth of states from a small decision problem, for traffic of this demand.

    Source: our study; see `value` and `docs/placement.md`. A kind of GPU takes a second when it is first met.
    """
    return by_formula("priced", demand)


def planned(plan: Plan) -> WorthRanking:
    """AUTO: the ranking of a plan. Kinds of GPUs that it does not know go by `BASE`, for the demand of the plan.

    Source: our study. Making the plan takes some ten seconds, see `make_plan`; the allocator does it in the background.
    """
    base = by_formula(BASE, plan.demand)

    def find(gpu: GPU) -> Mapping[Key, int]:
        made = plan.kinds.get(kind_of(gpu))
        return {} if made is None else made.worth

    return WorthRanking(find, base)
