"""Plans: for each kind of GPU of a fleet the worth of its states, chosen for the demand of the moment.

A plan is a value. Whoever has the same plan decides alike, so the allocator keeps it in the ledger and every replica reads it
there. Making one takes seconds; deciding by one takes a look at a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.domain.policy.demand import UNKNOWN, Demand
from mig_spawner.domain.policy.fragmentation import fragmentation
from mig_spawner.domain.policy.priced.chart import Chart, Key, Shape, chart, shapes_of, stand_in
from mig_spawner.domain.policy.priced.rehearsal import Traffic, rehearse
from mig_spawner.domain.policy.priced.value import Choosiness, worth
from mig_spawner.domain.policy.share import spent

RANGE: Final = 1_000_000
"""From the state that is worth least to the empty GPU; so kinds of GPUs can be compared, and no rounding tells equal states apart."""

SETTINGS: Final[Mapping[str, Choosiness]] = {
    "priced": Choosiness(6),
    "priced-choosier": Choosiness(12),
    "priced-patient": Choosiness(6, patience=1),
    "priced-hasty": Choosiness(4, patience=0.5),
}
MEAN: Final = "priced-mean"
FORMULAS: Final = ("min-fragmentation", "share-weighted")
CANDIDATES: Final = (*FORMULAS, *SETTINGS, MEAN)
"""What is rehearsed; of equals the first is taken."""

MOST_GPUS: Final = 100
"""A rehearsal on more takes longer and tells no more."""


@dataclass(frozen=True, slots=True)
class KindPlan:
    """What the states of one kind of GPU are worth.

    Attributes:
        winner: the candidate whose worths these are, one of `CANDIDATES`.
        accepted: by candidate, the part of the rehearsed slice-time that it accepted; empty if nothing was rehearsed.
        worth: of every state, 0 to `RANGE`.
    """

    winner: str
    accepted: Mapping[str, float]
    worth: Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was planned for a fleet.

    Attributes:
        demand: what it was made for.
        kinds: by `kind_of` its GPUs.
    """

    demand: Demand = UNKNOWN
    kinds: Mapping[str, KindPlan] = field(default_factory=dict)


def kind_of(gpu: GPU) -> str:
    """What GPUs have in common that can be planned for together: the names, sizes and starts of their profiles. 16 hex digits."""
    return _kind(gpu.profiles)


@lru_cache(maxsize=1024)
def _kind(profiles: tuple[Profile, ...]) -> str:
    parts = sorted(f"{p.name}:{p.size}@{','.join(map(str, sorted(p.starts)))}" for p in profiles)
    return sha256(" ".join(parts).encode()).hexdigest()[:16]


def make_plan(gpus: Iterable[GPU], demand: Demand, *, arrivals: int = Traffic(1).arrivals) -> Plan:
    """Work out the worths for every kind of these GPUs: the candidates are rehearsed on traffic of this demand.

    It takes some ten seconds for each kind, and gives the same whenever it is asked the same. Kinds with too many states for that are
    left out.
    """
    kinds = {}
    for kind, job in jobs(gpus, demand).items():
        made = plan_kind(job, arrivals=arrivals)
        if made is not None:
            kinds[kind] = made
    return Plan(demand, kinds)


class Job(NamedTuple):
    """What there is to plan for one kind of GPU.

    Attributes:
        gpus: how many of the kind there are, at most `MOST_GPUS`.
    """

    grid: int
    shapes: tuple[Shape, ...]
    gpus: int


def jobs(gpus: Iterable[GPU], demand: Demand) -> dict[str, Job]:
    """What there is to plan for these GPUs, by kind. Those without profiles need no plan."""
    counts: dict[str, list[GPU]] = {}
    for gpu in gpus:
        if gpu.profiles:
            counts.setdefault(kind_of(gpu), []).append(gpu)
    return {
        kind: Job(alike[0].grid, shapes_of(alike[0], demand), min(len(alike), MOST_GPUS))
        for kind, alike in sorted(counts.items())
    }


@lru_cache(maxsize=16)
def plan_kind(
    job: Job, *, candidates: tuple[str, ...] = CANDIDATES, arrivals: int = Traffic(1).arrivals
) -> KindPlan | None:
    """The plan for one kind, of these candidates; None if it has too many states. A lone candidate is not rehearsed."""
    ways = chart(job.grid, job.shapes)
    if ways is None:
        return None
    worths = {name: candidate(name, job.grid, job.shapes) for name in candidates}
    if len(candidates) == 1:
        return KindPlan(candidates[0], {}, worths[candidates[0]])
    traffic = Traffic(job.gpus, arrivals)
    accepted = {name: rehearse(ways, own, traffic) for name, own in worths.items()}
    winner = max(candidates, key=lambda name: accepted[name])
    return KindPlan(winner, accepted, worths[winner])


@lru_cache(maxsize=128)
def candidate(name: str, grid: int, shapes: tuple[Shape, ...]) -> Mapping[Key, int]:
    """The worths of one of `CANDIDATES`; none at all if there were too many states."""
    ways = chart(grid, shapes)
    if ways is None:
        return {}
    if name in SETTINGS:
        return _spread(worth(ways, SETTINGS[name]))
    if name == MEAN:
        parts = [candidate(setting, grid, shapes) for setting in SETTINGS]
        return _spread({key: sum(part[key] for part in parts) for key in ways.keys})
    return _spread(_FORMULAS[name](ways))


def _spread(values: Mapping[Key, float]) -> dict[Key, int]:
    """Onto 0 to `RANGE`."""
    least, most = min(values.values()), max(values.values())
    width = (most - least) or 1
    return {key: round((value - least) / width * RANGE) for key, value in values.items()}


def _blocked(ways: Chart) -> Mapping[Key, float]:
    return {key: -fragmentation(layout) for key, layout in _layouts(ways)}


def _spent(ways: Chart) -> Mapping[Key, float]:
    gpu = stand_in(ways.shapes)
    pairs = zip(gpu.profiles, ways.shapes, strict=True)
    demand = Demand.of({profile.name: shape.share for profile, shape in pairs})
    return {key: -spent(layout, demand) for key, layout in _layouts(ways)}


def _layouts(ways: Chart) -> Iterable[tuple[Key, Layout]]:
    gpu = stand_in(ways.shapes)
    return ((key, Layout(gpu, key[0], heads=key[1])) for key in ways.keys)


_FORMULAS: Final[Mapping[str, Callable[[Chart], Mapping[Key, float]]]] = {
    "min-fragmentation": _blocked,
    "share-weighted": _spent,
}
