"""A fleet that is kept decides as one that is looked through, and both as somebody who tries every place."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import Decision, Device, GPUState
from mig_spawner.domain.gpu import Engines, Layout, Placement
from mig_spawner.domain.policy import POLICIES, UNKNOWN, Demand, Index, Ranking, choose
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.testing.gpu import Model, find_model

MakeState = Callable[..., GPUState]

MODELS = [find_model(name) for name in ("a30-24gb", "a100-80gb", "h100-80gb", "rtx-pro-6000")]
NAMES = sorted({p.profile.name for model in MODELS for p in model.profiles})
REQUESTS: list[Request] = [
    *map(SliceRequest, NAMES),
    *map(MemoryRequest, (1, 10, 20, 40, 90)),
    *(DeviceRequest(f"MIG-GPU-{gpu}-{start}") for gpu in (0, 1) for start in (0, 4)),
    WholeRequest(),
]
CHANGES: list[dict[str, object]] = [
    {"unavailable": "Cordoned."},
    {"unavailable": None},
    {"dynamic": False},
    {"dynamic": True},
    {"mig_enabled": None},
    {"mig_enabled": False, "busy": False},
    {"mig_enabled": False, "busy": True},
    {"mig_enabled": True},
]
DEMANDS = st.one_of(
    st.just(UNKNOWN), st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), max_size=4).map(Demand.of)
)


def make_fleet(models: list[Model]) -> list[GPUState]:
    fleet = []
    for number, model in enumerate(models):
        gpu = model.gpu(f"GPU-{number}")
        fleet.append(GPUState(f"node-{number}", gpu, Layout(gpu)))
    return fleet


def by_trying(name: ProfileName, fleet: list[GPUState], ranking: Ranking) -> tuple[str, int] | None:
    """The best new place of a profile: every legal one is ranked."""
    places = [
        (rank.gpu, number, rank.start, start)
        for number, state in enumerate(fleet)
        for profile in state.gpu.profiles
        if profile.name == name and state.unavailable is None and state.cuttable
        for start in state.layout.starts(profile)
        for rank in [ranking(state.layout, profile, start)]
    ]
    if not places:
        return None
    _, number, _, start = min(places)
    return fleet[number].gpu.gpu_uuid, start


class Scene:
    """A fleet, an index beside it, and what is held."""

    def __init__(self, fleet: list[GPUState], ranking: Ranking) -> None:
        self.fleet = fleet
        self.ranking = ranking
        self.index = Index(fleet, ranking)
        self.held: list[Decision] = []

    def ask(self, request: Request) -> Decision | None:
        decision = choose(request, self.fleet, self.ranking)
        assert self.index.choose(request) == decision
        if decision is not None:
            assert all(not decision.placement.overlaps(other.placement) for other in self.held)
            state = self.find(decision)
            if decision.cut or decision.profile is None:
                assert not state.layout.mask & decision.placement.mask
            if decision.cut and decision.profile is not None:
                assert decision.placement.start in state.layout.starts(decision.profile)
            self.held.append(decision)
            self.refresh(state)
        if isinstance(request, SliceRequest) and (decision is None or decision.cut):
            chosen = by_trying(request.profile, self.before(decision), self.ranking)
            assert chosen == (decision and (decision.placement.gpu_uuid, decision.placement.start))
        return decision

    def before(self, decision: Decision | None) -> list[GPUState]:
        if decision is None:
            return self.fleet
        held = [other for other in self.held if other is not decision]
        return [self.as_held(state, held) for state in self.fleet]

    def give_back(self, number: int) -> None:
        if self.held:
            self.refresh(self.find(self.held.pop(number % len(self.held))))

    def change(self, number: int, **change: object) -> None:
        state = self.fleet[number % len(self.fleet)]
        if change.get("mig_enabled", True) is not True and not state.layout.empty:
            return
        self.refresh(replace(state, **change))  # type: ignore[arg-type]

    def stand(self, number: int, name: ProfileName) -> None:
        """An admin cuts a device that can be leased as it stands."""
        state = self.fleet[number % len(self.fleet)]
        profile = state.gpu.profile(name)
        starts = () if profile is None else state.layout.starts(profile)
        if profile is not None and starts and state.mig_enabled is True:
            placement = Placement(state.gpu.gpu_uuid, starts[0], profile.size)
            device = Device(placement, profile, f"MIG-{state.gpu.gpu_uuid}-{starts[0]}", idle=True)
            self.refresh(replace(state, devices=(*state.devices, device)))

    def find(self, decision: Decision) -> GPUState:
        return next(s for s in self.fleet if s.gpu.gpu_uuid == decision.gpu.gpu_uuid)

    def refresh(self, state: GPUState) -> None:
        state = self.as_held(state, self.held)
        self.fleet[[s.gpu.gpu_uuid for s in self.fleet].index(state.gpu.gpu_uuid)] = state
        self.index.put(state)

    @staticmethod
    def as_held(state: GPUState, held: list[Decision]) -> GPUState:
        layout = Layout(state.gpu)
        mine = [d for d in held if d.gpu.gpu_uuid == state.gpu.gpu_uuid]
        taken = {d.device_uuid for d in mine}
        devices = tuple(replace(d, idle=d.device_uuid not in taken) for d in state.devices)
        for device in devices:
            layout = layout.with_taken(device.placement, device.profile.engines)
        for decision in mine:
            if decision.device_uuid is None or decision.profile is None:
                engines = Engines() if decision.profile is None else decision.profile.engines
                layout = layout.with_taken(decision.placement, engines)
        return replace(state, layout=layout, devices=devices)


ACTIONS = st.lists(
    st.one_of(
        st.sampled_from(REQUESTS),
        st.integers(0, 50),
        st.tuples(st.integers(0, 5), st.sampled_from(CHANGES)),
        st.tuples(st.integers(0, 5), st.sampled_from(NAMES)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(
    models=st.lists(st.sampled_from(MODELS), min_size=1, max_size=5),
    policy=st.sampled_from(sorted(POLICIES)),
    demand=DEMANDS,
    actions=ACTIONS,
)
def test_index_scan_and_trial_agree_whatever_happens(
    models: list[Model],
    policy: str,
    demand: Demand,
    actions: list[Request | int | tuple[int, dict[str, object] | ProfileName]],
) -> None:
    scene = Scene(make_fleet(models), POLICIES[policy].ranking(demand))
    for action in actions:
        if isinstance(action, int):
            scene.give_back(action)
        elif isinstance(action, tuple):
            number, what = action
            if isinstance(what, ProfileName):
                scene.stand(number, what)
            else:
                scene.change(number, **what)
        else:
            scene.ask(action)
    for request in REQUESTS:
        assert scene.index.choose(request) == choose(request, scene.fleet, scene.ranking)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_long_life_changes_nothing(policy: str) -> None:
    """Long enough that the lines, which keep who has moved on, are made anew many times."""
    dice = random.Random(policy)
    scene = Scene(make_fleet(MODELS), POLICIES[policy].ranking())
    for _ in range(400):
        if dice.random() < 0.5:
            scene.ask(dice.choice(REQUESTS[:-1]))
        else:
            scene.give_back(dice.randrange(100))
    # Without anybody asking, nothing comes to the front of a line and is skipped there.
    empty, full = scene.fleet[1], scene.fleet[1]
    empty = replace(empty, layout=Layout(empty.gpu))
    full = replace(full, layout=Layout(full.gpu, 0xFF))
    for _ in range(300):
        scene.index.put(empty)
        scene.index.put(full)
    scene.index.put(scene.fleet[1])
    for request in REQUESTS:
        assert scene.index.choose(request) == choose(request, scene.fleet, scene.ranking)


def test_a_gpu_that_is_removed_is_not_chosen_and_comes_back_last(make_state: MakeState) -> None:
    fleet = [make_state(number=n) for n in range(2)]
    index = Index(fleet, POLICIES["first-fit"])
    index.remove(fleet[0].gpu.gpu_uuid)
    nodes = []
    for request in (SliceRequest(ProfileName(1, 10)), WholeRequest()):
        decision = index.choose(request)
        assert decision is not None
        nodes.append(decision.node)
    assert nodes == ["node-1", "node-1"]
    index.put(fleet[0])
    assert index.choose(WholeRequest()) == choose(WholeRequest(), fleet[::-1], POLICIES["first-fit"])
    with pytest.raises(KeyError):
        index.remove("GPU-nowhere")


def test_equal_profiles_of_different_models_are_one_fleet(make_state: MakeState) -> None:
    """A 1g.10gb is on A100 and H100 alike: the fuller GPU is taken, whichever it is."""
    fleet = [make_state("a100-80gb"), make_state("h100-80gb", [("3g.40gb", 0)], number=1)]
    decision = Index(fleet, POLICIES["best-fit"]).choose(SliceRequest(ProfileName(1, 10)))
    assert decision is not None
    assert decision.node == "node-1"


def test_a_gpu_whose_mig_mode_was_switched_on_goes_behind_the_uncut_ones(make_state: MakeState) -> None:
    fleet = [make_state(number=n, mig_enabled=False) for n in range(2)]
    index = Index(fleet, POLICIES["best-fit"])
    fleet[0] = replace(fleet[0], mig_enabled=True)
    index.put(fleet[0])
    decision = index.choose(WholeRequest())
    assert decision == choose(WholeRequest(), fleet, POLICIES["best-fit"])
    assert decision is not None
    assert decision.node == "node-1"
