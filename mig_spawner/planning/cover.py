"""The fewest GPUs that hold so many instances of each profile at once, and how each is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Final

from mig_spawner.domain.gpu import GPU, Layout
from mig_spawner.domain.policy.priced.packing import prices
from mig_spawner.domain.profile import ProfileName
from mig_spawner.planning.fleet import Cut

Counts = tuple[int, ...]

MAX_STEPS: Final = 50_000
"""So many tries; then what was found is given, beside the bound."""


@dataclass(frozen=True, slots=True)
class Cover:
    """GPUs that hold what is needed.

    Attributes:
        gpus: which, and how each is cut; room that is left is used as well.
        least: no cover takes fewer GPUs, as far as is known; if it is as many as these, there is none smaller.
    """

    gpus: tuple[tuple[GPU, Cut], ...]
    least: int


@lru_cache(maxsize=256)
def cuts(gpu: GPU, names: tuple[ProfileName, ...]) -> tuple[Counts, ...]:
    """How many instances of these profiles fit beside each other on a GPU, as counts to which nothing can be added."""
    profiles = [(number, p) for number, name in enumerate(names) if (p := gpu.profile(name)) is not None]
    start = (Layout(gpu), (0,) * len(names))
    seen = {(start[0].mask, start[0].engines, start[1])}
    todo, full = [start], set()
    while todo:
        layout, counts = todo.pop()
        ways = [(number, profile, s) for number, profile in profiles for s in layout.starts(profile)]
        if not ways:
            full.add(counts)
        for number, profile, s in ways:
            after = layout.with_instance(profile, s)
            more = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
            if (after.mask, after.engines, more) not in seen:
                seen.add((after.mask, after.engines, more))
                todo.append((after, more))
    return tuple(sorted(c for c in full if not any(o != c and _holds(o, c) for o in full)))


def _holds(have: Counts, need: Counts) -> bool:
    return all(a >= b for a, b in zip(have, need, strict=True))


def cover(gpus: Sequence[GPU], need: Mapping[ProfileName, int]) -> Cover | None:
    """The fewest of these GPUs that hold all of it at once; None if they do not suffice, or were not found to.

    GPUs of one kind are taken in their order.
    """
    names = tuple(sorted(name for name, count in need.items() if count))
    search = _Search(gpus, names)
    wanted = tuple(need[name] for name in names)
    if not names:
        return Cover((), 0)
    least = search.least(wanted)
    if least is None:
        return None
    for count in range(least, len(gpus) + 1):
        found = search.within(wanted, count)
        if found is not None:
            return Cover(search.named(found), least)
        if search.steps > MAX_STEPS:
            break
    return None


class _Search:
    """Depth first, the cut first that is worth most; what the rest takes at least says when to turn back."""

    def __init__(self, gpus: Sequence[GPU], names: tuple[ProfileName, ...]) -> None:
        self._names = names
        self._kinds: dict[tuple[Counts, ...], list[GPU]] = {}
        for gpu in gpus:
            ways = cuts(gpu, names) if gpu.profiles else ()
            if any(map(any, ways)):
                self._kinds.setdefault(ways, []).append(gpu)
        self._ways = [(number, counts) for number, ways in enumerate(self._kinds) for counts in ways]
        self._known: dict[Counts, tuple[float, tuple[float, ...]]] = {}
        self.steps = 0

    def least(self, need: Counts) -> int | None:
        """How many GPUs it takes at least; None if some profile is on none of them."""
        if any(n and not any(counts[i] for _, counts in self._ways) for i, n in enumerate(need)):
            return None
        return ceil(self._worth(need)[0] - 1e-6)

    def _worth(self, need: Counts) -> tuple[float, tuple[float, ...]]:
        if need not in self._known:
            self._known[need] = prices([counts for _, counts in self._ways], need) if any(need) else (0.0, need)
        return self._known[need]

    def within(self, need: Counts, count: int) -> list[tuple[int, Counts]] | None:
        """Cuts of at most so many GPUs that hold it, each with the number of its kind."""
        left = [len(gpus) for gpus in self._kinds.values()]
        self._dead: set[tuple[Counts, int, tuple[int, ...]]] = set()
        return self._go(need, count, left)

    def _go(self, need: Counts, count: int, left: list[int]) -> list[tuple[int, Counts]] | None:
        if not any(need):
            return []
        key = (need, count, tuple(left))
        worth, price = self._worth(need)
        if worth > count + 1e-6 or key in self._dead or self.steps > MAX_STEPS:
            return None
        self.steps += 1
        options: dict[tuple[int, Counts], Counts] = {}
        for kind, counts in self._ways:
            used = tuple(min(c, n) for c, n in zip(counts, need, strict=True))
            if left[kind] and any(used):
                options.setdefault((kind, used), counts)
        ranked = sorted(options, key=lambda o: (-sum(p * c for p, c in zip(price, o[1], strict=True)), -sum(o[1]), o))
        for kind, used in ranked:
            left[kind] -= 1
            rest = self._go(tuple(n - u for n, u in zip(need, used, strict=True)), count - 1, left)
            left[kind] += 1
            if rest is not None:
                return [(kind, options[kind, used]), *rest]
        self._dead.add(key)
        return None

    def named(self, found: Sequence[tuple[int, Counts]]) -> tuple[tuple[GPU, Cut], ...]:
        """The cuts on the GPUs themselves, equal ones side by side."""
        pools = [list(gpus) for gpus in self._kinds.values()]
        ordered = sorted(found, key=lambda way: (way[0], tuple(-c for c in way[1])))
        return tuple(
            (pools[kind].pop(0), tuple(n for n, c in zip(self._names, counts, strict=True) for _ in range(c)))
            for kind, counts in ordered
        )
