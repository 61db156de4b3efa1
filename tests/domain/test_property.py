"""What holds whatever happens: nothing overlaps, no engine is given twice, a free slice is never called taken."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Engines, Layout, Placement, Profile, layout_of
from mig_spawner.domain.policy import POLICIES, choose
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.testing.gpu import Model, list_models

MODELS = [m for m in list_models() if not m.refusal]
NAMES = sorted({p.profile.name for m in MODELS for p in m.profiles})

REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.sampled_from(NAMES).map(SliceRequest),
    st.integers(1, 120).map(MemoryRequest),
    st.just(WholeRequest()),
)
ACTIONS = st.lists(st.one_of(REQUESTS, st.integers(0, 50)), max_size=40)
"""Ask for something, or give back one of what is held."""


@settings(max_examples=120, deadline=None)
@given(
    models=st.lists(st.sampled_from(MODELS), min_size=1, max_size=3),
    policy=st.sampled_from(sorted(POLICIES)),
    actions=ACTIONS,
)
def test_no_overlap_ever(models: list[Model], policy: str, actions: list[Request | int]) -> None:
    fleet = []
    for number, model in enumerate(models):
        gpu = model.gpu(f"GPU-{number}")
        fleet.append(GPUState(f"node-{number}", gpu, Layout(gpu)))
    held: list[tuple[Placement, Profile | None]] = []
    for action in actions:
        if isinstance(action, int):
            if held:
                held.pop(action % len(held))
        else:
            decision = choose(action, fleet, POLICIES[policy])
            if decision is not None:
                assert all(not decision.placement.overlaps(p) for p, _ in held)
                if decision.profile is not None:
                    assert decision.placement.start in decision.profile.starts
                    assert decision.placement.size == decision.profile.size
                held.append((decision.placement, decision.profile))
        fleet = [replace(state, layout=_layout(state, held)) for state in fleet]
        for state in fleet:
            mine = [p for p, _ in held if p.gpu_uuid == state.gpu.gpu_uuid]
            assert state.layout.taken == sum(p.size for p in mine) <= state.gpu.grid
            assert state.layout.engines.fit_in(state.gpu.engines)


def _layout(state: GPUState, held: list[tuple[Placement, Profile | None]]) -> Layout:
    layout = Layout(state.gpu)
    for placement, profile in held:
        if placement.gpu_uuid == state.gpu.gpu_uuid:
            layout = layout.with_taken(placement, Engines() if profile is None else profile.engines)
    return layout


def _most(layout: Layout, profile: Profile, after: int = -1) -> int:
    starts = [s for s in layout.starts(profile) if s > after]
    return max((1 + _most(layout.with_instance(profile, s), profile, s) for s in starts), default=0)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), model=st.sampled_from(MODELS))
def test_capacity_is_the_most_that_fits_beside_anything(data: st.DataObject, model: Model) -> None:
    gpu = model.gpu("GPU-x")
    layout = Layout(gpu)
    instances = []
    for _ in range(data.draw(st.integers(0, 4))):
        places = [(p, s) for p in gpu.profiles for s in layout.starts(p)]
        if places:
            instances.append(data.draw(st.sampled_from(places)))
            layout = layout.with_instance(*instances[-1])
    assert layout == layout_of(gpu, instances)
    profile = data.draw(st.sampled_from(gpu.profiles))
    assert layout.capacity(profile) == _most(layout, profile)


@given(model=st.sampled_from(MODELS), policy=st.sampled_from(sorted(POLICIES)), data=st.data())
@settings(max_examples=80, deadline=None)
def test_what_is_free_is_granted(model: Model, policy: str, data: st.DataObject) -> None:
    """A policy chooses among places; it never says no while there is one."""
    gpu = model.gpu("GPU-x")
    state = GPUState("node", gpu, Layout(gpu))
    profile = data.draw(st.sampled_from(gpu.profiles))
    free = state.free(profile.name)
    for left in range(free, 0, -1):
        assert state.free(profile.name) >= 1, left
        decision = choose(SliceRequest(profile.name), [state], POLICIES[policy])
        assert decision is not None
        assert decision.profile == profile
        state = replace(state, layout=state.layout.with_instance(profile, decision.placement.start))
        if profile.size > 1 and state.free(profile.name) == 0:
            break
    assert (choose(SliceRequest(profile.name), [state], POLICIES[policy]) is None) == (state.free(profile.name) == 0)
