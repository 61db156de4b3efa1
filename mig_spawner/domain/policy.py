"""Which of the legal places a lease gets.

A policy is a pure function of request and fleet. Every policy here takes the legal (GPU, start) with the least rank,
ties by the order of the fleet; so two replicas that see the same ledger decide alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mig_spawner.domain.fleet import Decision, GPUState, profiles_for
from mig_spawner.domain.gpu import Layout, Placement, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import Request, WholeRequest

Rank = tuple[int, ...]
Ranking = Callable[[GPUState, Profile, int], Rank]
"""Rank of making an instance of a profile at a start of a GPU; least wins. It depends on the GPU's profiles and layout alone."""


def first_fit(state: GPUState, profile: Profile, start: int) -> Rank:
    """The first GPU that has room, at its first free start. What kube-scheduler's DRA allocator does."""
    del state, profile
    return (0, start)


def best_fit(state: GPUState, profile: Profile, start: int) -> Rank:
    """The fullest GPU that has room; on it the start that spoils the fewest places for other profiles, the highest of equals.

    On the seven-slice grid that fills single slices from the far end, as the driver does, and keeps 4g and 3g whole.
    """
    return (-state.layout.taken, spoiled(state.layout, profile, start), -start)


def spoiled(layout: Layout, profile: Profile, start: int) -> int:
    """How many (profile, start) places that are free now would be gone after this placement."""
    after = layout.with_instance(profile, start)
    return sum(len(layout.starts(other)) - len(after.starts(other)) for other in layout.gpu.profiles)


POLICIES: Final[Mapping[str, Ranking]] = MappingProxyType({"best-fit": best_fit, "first-fit": first_fit})


def choose(request: Request, fleet: Sequence[GPUState], ranking: Ranking) -> Decision | None:
    """Where to serve a request now, or None if nothing legal is free.

    Standing devices go before new ones: they cost no cut and cannot fragment anything further.
    """
    if isinstance(request, WholeRequest):
        return _whole(fleet)
    for name in profiles_for(request, fleet):
        decision = _standing(name, fleet) or _cut(name, fleet, ranking)
        if decision is not None:
            return decision
    return None


def _whole(fleet: Sequence[GPUState]) -> Decision | None:
    free = [state for state in fleet if state.whole_free]
    if not free:
        return None
    # A GPU that is uncut already needs no change of mode, and leaves the others to people who want a slice.
    state = min(free, key=lambda s: s.mig_enabled is True)
    ready = state.mig_enabled is not True
    return Decision(state.node, state.gpu, state.gpu.whole, None, state.gpu.gpu_uuid if ready else None, cut=not ready)


def _standing(name: ProfileName, fleet: Sequence[GPUState]) -> Decision | None:
    for state in fleet:
        if state.unavailable is None:
            for device in state.devices:
                if device.idle and device.profile.name == name:
                    return Decision(
                        state.node, state.gpu, device.placement, device.profile, device.device_uuid, cut=False
                    )
    return None


def _cut(name: ProfileName, fleet: Sequence[GPUState], ranking: Ranking) -> Decision | None:
    best = min(_legal(name, fleet), key=lambda place: ranking(*place), default=None)
    if best is None:
        return None
    state, profile, start = best
    placement = Placement(state.gpu.gpu_uuid, start, profile.size)
    return Decision(state.node, state.gpu, placement, profile, None, cut=True)


def _legal(name: ProfileName, fleet: Sequence[GPUState]) -> Iterator[tuple[GPUState, Profile, int]]:
    """The legal places, those of equal GPUs with equal layouts once: a rank does not see which of them it is."""
    seen = set()
    for state in fleet:
        if state.unavailable is not None or not state.cuttable:
            continue
        kind = (state.gpu.profiles, state.layout.mask, state.layout.engines)
        profile = state.gpu.profile(name)
        if profile is not None and kind not in seen:
            seen.add(kind)
            for start in state.layout.starts(profile):
                yield state, profile, start
