"""The GPUs of a run: what is granted and given back, and what stands idle meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.gpu import GPU, Engines, Layout
from mig_spawner.domain.policy import UNKNOWN, Demand, Index, Ranking, Rules, concerned, first_fit, forbidding
from mig_spawner.domain.policy.demand import PARTS
from mig_spawner.domain.policy.fragmentation import useless
from mig_spawner.domain.request import Request


class Held(NamedTuple):
    """What is on a GPU, the second at which it ends, and the groups of who has it."""

    decision: Decision
    until: float
    groups: frozenset[str]


class Stage:
    """A fleet that is kept. It decides as the allocator decides, by an `Index`."""

    def __init__(
        self, fleet: Sequence[GPUState], ranking: Ranking, demand: Demand = UNKNOWN, *, apart: Rules = ()
    ) -> None:
        """`demand` is for measuring fragmentation only; `apart` are the groups that never share a GPU."""
        self.apart = apart
        self.states = {state.gpu.gpu_uuid: state for state in fleet}
        self._standing = {uuid: state.layout for uuid, state in self.states.items()}
        self._held: dict[str, list[Held]] = {uuid: [] for uuid in self.states}
        self.ranking = ranking
        self._index = Index(fleet, ranking)
        self._stranded = _Stranded(demand)
        self.active = 0
        """GPUs with something on them."""
        self.taken = 0.0
        """Memory slices in use, in GPUs."""
        self.stranded = sum(map(self._stranded.of, fleet))
        """Free memory slices that the next request is expected not to be able to use, in GPUs."""

    def rank_by(self, ranking: Ranking) -> None:
        """Decide by another ranking from now on; nothing that runs is touched."""
        self.ranking = ranking
        self._index = Index(self.states.values(), ranking)

    @property
    def has_room(self) -> bool:
        """Whether anything at all could be served now."""
        return self._index.has_room

    def choose(self, request: Request, groups: frozenset[str] = frozenset()) -> Decision | None:
        """Where somebody with these groups would be served now."""
        shut = self._shut(groups)
        for uuid in shut:
            self._index.put(replace(self.states[uuid], unavailable="kept apart", devices=()))
        try:
            return self._index.choose(request)
        finally:
            for uuid in shut:
                self._index.put(self.states[uuid])

    def _shut(self, groups: frozenset[str]) -> list[str]:
        if not concerned(self.apart, groups):
            return []
        return [
            uuid
            for uuid, held in self._held.items()
            if any(forbidding(self.apart, groups, one.groups) is not None for one in held)
        ]

    def held(self, gpu_uuid: str) -> Sequence[Held]:
        """What is on a GPU."""
        return self._held[gpu_uuid]

    def start(self, decision: Decision, until: float = inf, groups: frozenset[str] = frozenset()) -> None:
        """Put a decision of this moment for somebody with these groups on its GPU, to stay until then."""
        uuid = decision.gpu.gpu_uuid
        self._held[uuid].append(Held(decision, until, groups))
        self.active += len(self._held[uuid]) == 1
        layout = self.states[uuid].layout
        if decision.cut or decision.profile is None:
            layout = layout.with_taken(decision.placement, _engines(decision))
        self._put(uuid, layout, decision)
        self.taken += decision.share

    def stop(self, decision: Decision) -> None:
        """Take off what was started."""
        uuid = decision.gpu.gpu_uuid
        held = self._held[uuid]
        held.remove(next(h for h in held if h.decision.placement == decision.placement))
        self.active -= not held
        layout = self._standing[uuid]
        if decision.cut or decision.profile is None:
            for other in held:
                layout = layout.with_taken(other.decision.placement, _engines(other.decision))
        self._put(uuid, layout, decision)
        self.taken -= decision.share

    def _put(self, uuid: str, layout: Layout, decision: Decision) -> None:
        before = self.states[uuid]
        if decision.profile is not None and not decision.cut:
            places = {held.decision.placement for held in self._held[uuid]}
            devices = tuple(replace(d, idle=d.placement not in places) for d in before.devices)
            state = replace(before, devices=devices)
        else:
            state = GPUState(before.node, before.gpu, layout, before.devices, before.dynamic, before.mig_enabled)
        self.stranded += self._stranded.of(state) - self._stranded.of(before)
        self.states[uuid] = state
        self._index.put(state)


def _engines(decision: Decision) -> Engines:
    return Engines() if decision.profile is None else decision.profile.engines


class _Stranded:
    """How much of a GPU is free and of no use for the next request, as a part of it."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._known: dict[tuple[int, int, int, Engines], float] = {}
        self._kept: dict[int, GPU] = {}

    def of(self, state: GPUState) -> float:
        if not state.dynamic or not state.gpu.profiles:
            return 0.0
        layout = state.layout
        key = (id(layout.gpu.profiles), layout.mask, layout.heads, layout.engines)
        found = self._known.get(key)
        if found is None:
            self._kept.setdefault(id(layout.gpu.profiles), layout.gpu)
            found = self._known[key] = useless(layout, self._demand) / PARTS / layout.gpu.grid
        return found


def share_of(request: Request, gpus: Iterable[GPU], grid: dict[Request, float]) -> float:
    """What part of a GPU a request asks for: of the smallest place that would do; 1 where none does. `grid` remembers."""
    known = grid.get(request)
    if known is None:
        parts = [
            decision.share
            for gpu in {id(g.profiles): g for g in gpus}.values()
            for decision in [Index([GPUState("", gpu, Layout(gpu))], first_fit).choose(request)]
            if decision is not None
        ]
        known = grid[request] = min(parts, default=1.0)
    return known
