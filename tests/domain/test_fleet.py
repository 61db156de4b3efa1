"""What a fleet can serve now and ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.fleet import Device, GPUState, impossible, profile_names, profiles_for
from mig_spawner.domain.gpu import GPU, Layout, Placement
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest

MakeState = Callable[..., GPUState]

ONE, TWO, THREE = ProfileName(1, 10), ProfileName(2, 20), ProfileName(3, 40)


def standing(state: GPUState, name: ProfileName, start: int, *, idle: bool = True) -> Device:
    profile = state.gpu.profile(name)
    assert profile is not None
    return Device(Placement(state.gpu.gpu_uuid, start, profile.size), profile, f"MIG-{start}", idle)


@pytest.mark.parametrize(
    ("taken", "change", "free", "total"),
    [
        pytest.param([], {}, 7, 7, id="empty and dynamic"),
        pytest.param([("3g.40gb", 0)], {}, 3, 7, id="partly taken"),
        pytest.param([("7g.80gb", 0)], {}, 0, 7, id="full"),
        pytest.param(
            [], {"unavailable": "The node is silent."}, 0, 7, id="unavailable is not free, but not impossible"
        ),
        pytest.param([], {"dynamic": False}, 0, 0, id="static and uncut"),
        pytest.param([], {"mig_enabled": False}, 7, 7, id="MIG off, empty, idle: can be switched on"),
        pytest.param([], {"mig_enabled": False, "busy": True}, 0, 7, id="MIG off and busy"),
        pytest.param([("1g.10gb", 0)], {"mig_enabled": False}, 0, 7, id="MIG off and leased whole or in part"),
        pytest.param([], {"mig_enabled": None}, 0, 0, id="no MIG mode"),
        pytest.param([], {"busy": True}, 7, 7, id="busy says nothing once MIG is on"),
    ],
)
def test_free_and_total_of_1g(
    make_state: MakeState, taken: list[tuple[str, int]], change: dict[str, object], free: int, total: int
) -> None:
    state = make_state("a100-80gb", taken, **change)
    assert (state.free(ONE), state.total(ONE)) == (free, total)


def test_standing_devices_count_where_nothing_can_be_cut(make_state: MakeState) -> None:
    state: GPUState = make_state("a100-80gb", [("1g.10gb", 0), ("1g.10gb", 1)], dynamic=False)
    devices = (standing(state, ONE, 0), standing(state, ONE, 1, idle=False))
    state = GPUState(state.node, state.gpu, state.layout, devices, dynamic=False)
    assert state.free(ONE) == 1
    assert state.total(ONE) == 2
    assert state.total(TWO) == 0


@pytest.mark.parametrize(
    ("taken", "change", "expected"),
    [
        pytest.param([], {}, True, id="empty"),
        pytest.param([], {"mig_enabled": False}, True, id="MIG off"),
        pytest.param([], {"mig_enabled": None}, True, id="no MIG mode"),
        pytest.param([("1g.10gb", 0)], {}, False, id="a slice is taken"),
        pytest.param([], {"mig_enabled": False, "busy": True}, False, id="busy"),
        pytest.param([], {"unavailable": "Cordoned."}, False, id="unavailable"),
        pytest.param([], {"dynamic": False}, False, id="cut by its admin"),
        pytest.param([], {"dynamic": False, "mig_enabled": False}, True, id="static, never cut"),
    ],
)
def test_whole_free(
    make_state: MakeState, taken: list[tuple[str, int]], change: dict[str, object], expected: bool
) -> None:
    assert make_state("a100-80gb", taken, **change).whole_free is expected


def test_profiles_of_a_mixed_fleet_are_listed_once_smallest_first(make_state: MakeState) -> None:
    fleet = [make_state("a30-24gb"), make_state("a100-80gb", number=1), make_state("h100-80gb", number=2)]
    names = [str(n) for n in profile_names(fleet)]
    assert len(names) == len(set(names))
    assert names[:3] == ["1g.6gb", "1g.6gb+me", "1g.10gb"]
    assert names.index("1g.20gb") < names.index("2g.20gb") < names.index("3g.40gb")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(SliceRequest(THREE), ["3g.40gb"], id="exactly this profile"),
        pytest.param(MemoryRequest(12), ["1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"], id="12 GB"),
        pytest.param(
            MemoryRequest(10), ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"], id="as the name says"
        ),
        pytest.param(MemoryRequest(81), [], id="more than there is"),
        pytest.param(WholeRequest(), [], id="whole"),
    ],
)
def test_profiles_that_serve_a_request_best_first(
    make_state: MakeState, request_: Request, expected: list[str]
) -> None:
    assert [str(n) for n in profiles_for(request_, [make_state()])] == expected


@pytest.mark.parametrize(
    ("request_", "change", "reason"),
    [
        pytest.param(SliceRequest(ONE), {}, None, id="offered"),
        pytest.param(SliceRequest(ONE), {"unavailable": "The node is silent."}, None, id="it may come back"),
        pytest.param(SliceRequest(ProfileName(1, 5)), {}, "No GPU here offers 1g.5gb", id="a profile of another GPU"),
        pytest.param(MemoryRequest(81), {}, "at least 81 GB", id="too much memory"),
        pytest.param(SliceRequest(ONE), {"dynamic": False}, "on offer: none", id="static and uncut"),
        pytest.param(WholeRequest(), {}, None, id="whole"),
        pytest.param(WholeRequest(), {"dynamic": False}, "fixed slices", id="whole, all cut"),
    ],
)
def test_what_no_waiting_can_serve_is_said_at_once(
    make_state: MakeState, request_: Request, change: dict[str, object], reason: str | None
) -> None:
    answer = impossible(request_, [make_state(**change)])
    assert answer is None if reason is None else answer is not None and reason in answer


def test_without_any_node_nothing_is_called_impossible() -> None:
    assert impossible(SliceRequest(ONE), []) is None


def test_a_gpu_without_mig_offers_itself_alone() -> None:
    gpu = GPU("GPU-t4", "Tesla T4", 15360, 40)
    state = GPUState("node", gpu, Layout(gpu), mig_enabled=None)
    assert profile_names([state]) == []
    assert state.whole_free
    assert impossible(SliceRequest(ONE), [state]) is not None
