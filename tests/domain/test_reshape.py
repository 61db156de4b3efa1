"""Which cut serves those who wait, and the steps of a proposal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import GPU, Layout, Placement
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.domain.reshape import CLOSED, Cut, Effect, Reshape, ReshapeState, Window, after, cut_for, move
from mig_spawner.errors import InvalidRequest, InvalidTransition
from mig_spawner.testing.gpu import list_models

MakeGPU = Callable[..., GPU]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def partitioned(gpu: GPU, pieces: list[tuple[str, int, bool]], *, dynamic: bool = False) -> GPUState:
    """A GPU cut by its admin; of each partition whether it is idle."""
    layout, devices = Layout(gpu), []
    for name, start, idle in pieces:
        profile = gpu.profile(ProfileName.parse(name))
        assert profile is not None
        layout = layout.with_instance(profile, start)
        devices.append(Device(Placement(gpu.gpu_uuid, start, profile.size), profile, f"MIG-{start}", idle))
    return GPUState("n1", gpu, layout, tuple(devices), dynamic=dynamic)


def slices(*names: str) -> list[tuple[Request, ...]]:
    return [(SliceRequest(ProfileName.parse(name)),) for name in names]


def told(cut: Cut | None) -> tuple[list[str], list[str], int] | None:
    return None if cut is None else ([*map(str, cut.remove)], sorted(map(str, cut.make)), cut.serves)


IDLE = [("1g.10gb", start, True) for start in range(7)]


@pytest.mark.parametrize(
    ("pieces", "waiting", "expected"),
    [
        pytest.param(
            IDLE,
            slices("3g.40gb", "3g.40gb"),
            ([f"1g.10gb@{n}" for n in (4, 5, 6, 0, 1, 2, 3)], ["3g.40gb@0", "3g.40gb@4"], 2),
            id="both halves",
        ),
        pytest.param(
            [*IDLE[:4], ("3g.40gb", 4, False)],
            slices("2g.20gb"),
            (["1g.10gb@0", "1g.10gb@1"], ["2g.20gb@0"], 1),
            id="no more than it takes",
        ),
        pytest.param(
            [("3g.40gb", 0, True), ("3g.40gb", 4, False)],
            slices("1g.10gb"),
            (["3g.40gb@0"], ["1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3"], 1),
            id="what is left is filled up",
        ),
        pytest.param([("1g.10gb", n, False) for n in range(7)], slices("3g.40gb"), None, id="nothing is idle"),
        pytest.param(
            [("1g.10gb", 0, True), ("1g.10gb", 2, False), ("4g.40gb", 4, False)],
            slices("3g.40gb"),
            None,
            id="what is used is in the way everywhere",
        ),
        pytest.param(IDLE, [(WholeRequest(),)], None, id="an admin's GPU is not to be had whole"),
        pytest.param(IDLE, [(DeviceRequest("MIG-7"),)], None, id="a device by name is not made"),
        pytest.param(
            [*IDLE[:4], ("3g.40gb", 4, False)],
            [(MemoryRequest(15),)],
            (["1g.10gb@0", "1g.10gb@1"], ["1g.20gb@0"], 1),
            id="the smallest with enough memory",
        ),
    ],
)
def test_the_cut(
    make_gpu: MakeGPU,
    pieces: list[tuple[str, int, bool]],
    waiting: list[tuple[Request, ...]],
    expected: tuple[list[str], list[str], int] | None,
) -> None:
    assert told(cut_for(partitioned(make_gpu(), pieces), waiting)) == expected


def test_on_a_gpu_that_is_cut_on_demand_what_is_left_over_only_goes(make_gpu: MakeGPU) -> None:
    state = partitioned(make_gpu(), [("1g.10gb", 0, True), ("1g.10gb", 6, True)], dynamic=True)
    cut = cut_for(state, slices("4g.40gb"))
    assert told(cut) == (["1g.10gb@0"], [], 1)
    assert cut is not None
    assert after(state, cut).free(ProfileName.parse("4g.40gb")) == 1
    assert told(cut_for(state, [(WholeRequest(),)])) == (["1g.10gb@0", "1g.10gb@6"], [], 1)
    assert cut_for(state, slices("2g.20gb")) is None, "there is room without it"


@pytest.mark.parametrize("change", [{"unavailable": "cordoned"}, {"mig_enabled": False}], ids=str)
def test_where_nothing_may_be_granted_nothing_is_cut(make_gpu: MakeGPU, change: dict[str, object]) -> None:
    state = partitioned(make_gpu(), IDLE)
    state = GPUState(**{n: getattr(state, n) for n in GPUState.__slots__} | change)
    assert cut_for(state, slices("3g.40gb")) is None


MODELS = [model for model in list_models() if not model.refusal]


@st.composite
def cut_gpus(draw: st.DrawFn) -> GPUState:
    gpu = draw(st.sampled_from(MODELS)).gpu("GPU-0")
    layout, devices = Layout(gpu), []
    for _ in range(draw(st.integers(1, 7))):
        places = [(p, s) for p in gpu.profiles for s in layout.starts(p)]
        if places:
            profile, start = draw(st.sampled_from(places))
            layout = layout.with_instance(profile, start)
            place = Placement(gpu.gpu_uuid, start, profile.size)
            devices.append(Device(place, profile, f"MIG-{start}", draw(st.booleans())))
    return GPUState("n1", gpu, layout, tuple(devices), dynamic=draw(st.booleans()))


@settings(max_examples=300, deadline=None)
@given(state=cut_gpus(), data=st.data())
def test_only_idle_partitions_go_and_the_new_cut_is_legal_and_serves(state: GPUState, data: st.DataObject) -> None:
    names = sorted(p.name for p in state.gpu.profiles)
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    cut = cut_for(state, [(SliceRequest(name),) for name in wanted])
    if cut is None:
        assert not _some_cut_serves(state, wanted[0])
        return
    idle = {(d.profile.profile_id, d.placement.start) for d in state.devices if d.idle}
    assert {(p.profile.profile_id, p.start) for p in cut.remove} <= idle
    used = [d for d in state.devices if not d.idle]
    changed = after(state, cut)
    assert [d for d in changed.devices if not d.idle] == sorted(used, key=lambda d: d.placement.start)
    taken = 0
    for device in changed.devices:
        assert not device.placement.mask & taken
        taken |= device.placement.mask
        assert device.placement.start in device.profile.starts
    assert changed.layout.mask == taken
    assert changed.layout.engines.fit_in(state.gpu.engines)
    assert sum(changed.free(name) > state.free(name) for name in set(wanted)) > 0


def _some_cut_serves(state: GPUState, name: ProfileName) -> bool:
    """Whether some place would be free for the first if the idle partitions in its way were gone, and none is as things are."""
    profile = state.gpu.profile(name)
    assert profile is not None
    idle = [d for d in state.devices if d.idle]
    used = [d for d in state.devices if not d.idle]
    layout = Layout(state.gpu)
    for device in used:
        layout = layout.with_instance(device.profile, device.placement.start)
    if state.free(name) or any(d.profile.name == name for d in idle):
        return False
    for start in layout.starts(profile):
        window = Placement("", start, profile.size).mask
        beside = layout
        for device in (d for d in idle if not d.placement.mask & window):
            beside = beside.with_instance(device.profile, device.placement.start)
        if start in beside.starts(profile):
            return True
    return False


def proposal(**changes: object) -> Reshape:
    given = {
        "reshape_id": "r1",
        "node": "n1",
        "gpu_uuid": "GPU-0",
        "state": ReshapeState.PROPOSED,
        "proposed_at": NOW,
        "changed_at": NOW,
        "remove": (),
        "make": (),
        "before": (),
        "after": (),
        "standing": True,
        "asked": "3g.40gb",
        "effect": Effect(3300.0, 600.0, 1),
    }
    return Reshape(**given | changes)  # type: ignore[arg-type]


def test_what_has_ended_does_not_move_again() -> None:
    for state in CLOSED:
        for to in ReshapeState:
            with pytest.raises(InvalidTransition):
                move(proposal(state=state), to, NOW)
        assert proposal(state=state).closed


def test_what_has_gone_on_demand_is_done_with_unless_it_comes_back() -> None:
    applied = proposal(state=ReshapeState.APPLIED, standing=False)
    assert applied.closed
    assert not proposal(state=ReshapeState.APPLIED).closed
    assert not proposal(state=ReshapeState.APPLIED, standing=False, window=Window(None, NOW)).closed


def test_a_window_begins_before_it_ends() -> None:
    with pytest.raises(InvalidRequest, match="begins before it ends"):
        Window(NOW, NOW)
    window = Window(NOW, NOW + timedelta(hours=1))
    assert [window.begun(NOW - timedelta(seconds=1)), window.begun(NOW), window.over(NOW)] == [False, True, False]
    assert window.over(NOW + timedelta(hours=1))


def test_the_gain_is_endless_where_nobody_can_tell() -> None:
    assert Effect(3300.0, 600.0, 1).gain_s() == 2700
    assert Effect(None, 0.0, 1).gain_s() == float("inf")
