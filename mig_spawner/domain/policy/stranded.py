"""How broken up a GPU is, and how broken up GPUs are together: as a number and as a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Layout, Profile
from mig_spawner.domain.policy.demand import PARTS, UNKNOWN, Demand
from mig_spawner.domain.policy.fragmentation import useless
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.sentence import counted


@dataclass(frozen=True, slots=True)
class Stranded:
    """What is free on a GPU, or on several, and of how much use it is.

    Attributes:
        part: of the GPU is free, and the next request is expected not to be able to use it, 0 to 1.
        sentence: what is free and does not fit, such as "4 of 8 memory slices are free, yet no 3g.40gb fits."; empty if all fits that
            the free slices could hold, were they in one piece.
    """

    part: float
    sentence: str


def stranded(state: GPUState, demand: Demand = UNKNOWN) -> Stranded | None:
    """How broken up a GPU is for this demand; None for one on which nothing is cut, or nothing is granted now."""
    if not _counts(state):
        return None
    gpu, layout = state.gpu, state.layout
    free = gpu.grid - layout.taken
    lost = _lost(layout, free)
    name = lost[0].name if lost else None
    sentence = "" if name is None else f"{free} of {gpu.grid} memory slices are free, yet no {name} fits."
    return Stranded(useless(layout, demand) / PARTS / gpu.grid, sentence)


def stranded_together(states: Iterable[GPUState], demand: Demand = UNKNOWN) -> Stranded | None:
    """How broken up GPUs are together; None if nothing is cut on any of them.

    A profile is lost on them if it fits on none, although the free slices of those that offer it could hold it. GPUs in the same
    state are looked at once.
    """
    totals: dict[ProfileName, _Total] = {}
    known: dict[tuple[object, ...], _Look] = {}
    gpus, parts = 0, 0.0
    for state in states:
        if not _counts(state):
            continue
        gpus += 1
        layout = state.layout
        key = (id(state.gpu.profiles), layout.mask, layout.engines)
        look = known.get(key)
        if look is None:
            look = known[key] = _look(layout, demand)
        parts += look.part
        for profile, fits in look.offers:
            total = totals.setdefault(profile.name, _Total(profile.size / state.gpu.grid, profile.size))
            total.gpus += 1
            total.slices += state.gpu.grid
            total.free += state.gpu.grid - layout.taken
            total.fits |= fits
    if not gpus:
        return None
    lost = [(total.part, name) for name, total in totals.items() if not total.fits and total.size <= total.free]
    if not lost:
        return Stranded(parts / gpus, "")
    name = min(lost)[1]
    of = totals[name]
    where = counted(of.gpus, "GPU")
    return Stranded(
        parts / gpus, f"{of.free} of {of.slices} memory slices of {where} are free, yet no {name} fits on any."
    )


@dataclass(slots=True)
class _Total:
    """What the GPUs that offer a profile have together."""

    part: float
    size: int
    gpus: int = 0
    slices: int = 0
    free: int = 0
    fits: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """A state: its part of no use, and each plain profile with whether it fits."""

    part: float
    offers: tuple[tuple[Profile, bool], ...]


def _look(layout: Layout, demand: Demand) -> _Look:
    fitting = _fitting(layout)
    offers = tuple((p, p.size in fitting) for p in layout.gpu.profiles if not p.name.suffix)
    return _Look(useless(layout, demand) / PARTS / layout.gpu.grid, offers)


def _counts(state: GPUState) -> bool:
    return state.unavailable is None and state.cuttable_when_empty


def _fitting(layout: Layout) -> set[int]:
    """The sizes of which some plain profile fits: a 4g counts where a 3g fits, which takes as many memory slices."""
    return {p.size for p in layout.gpu.profiles if not p.name.suffix and layout.starts(p)}


def _lost(layout: Layout, free: int) -> list[Profile]:
    """What does not fit although so many slices are free. The smallest first: whoever wants more does not fit either."""
    fitting = _fitting(layout)
    lost = [p for p in layout.gpu.profiles if not p.name.suffix and p.size <= free and p.size not in fitting]
    return sorted(lost, key=lambda p: (p.size, p.compute_slices))
