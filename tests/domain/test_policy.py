"""Where a lease goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.fleet import Decision, Device, GPUState
from mig_spawner.domain.gpu import GPU, Layout, Placement
from mig_spawner.domain.policy import POLICIES, choose
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest

MakeGPU = Callable[..., GPU]
MakeState = Callable[..., GPUState]

BEST, FIRST = POLICIES["best-fit"], POLICIES["first-fit"]
ONE = SliceRequest(ProfileName(1, 10))


def after(state: GPUState, decision: Decision | None) -> GPUState:
    assert decision is not None
    assert decision.profile is not None
    layout = state.layout.with_instance(decision.profile, decision.placement.start)
    return GPUState(state.node, state.gpu, layout, state.devices, state.dynamic)


@pytest.mark.parametrize(
    ("policy", "start", "beside"),
    [
        pytest.param("first-fit", 0, {"4g.40gb": 0, "3g.40gb": 1, "2g.20gb": 2}, id="first-fit spoils 4g"),
        pytest.param("best-fit", 6, {"4g.40gb": 1, "3g.40gb": 1, "2g.20gb": 3}, id="best-fit leaves 4g and 2g"),
    ],
)
def test_a_1g_on_an_empty_gpu(make_state: MakeState, policy: str, start: int, beside: dict[str, int]) -> None:
    state: GPUState = make_state()
    decision = choose(ONE, [state], POLICIES[policy])
    assert decision is not None
    assert decision.placement.start == start
    state = after(state, decision)
    assert {name: state.free(ProfileName.parse(name)) for name in beside} == beside


def test_best_fit_fits_1g_2g_and_4g_together_where_first_fit_cannot(make_state: MakeState) -> None:
    def served(policy: str) -> int:
        state: GPUState = make_state()
        count = 0
        for name in ("1g.10gb", "2g.20gb", "4g.40gb"):
            decision = choose(SliceRequest(ProfileName.parse(name)), [state], POLICIES[policy])
            if decision is not None:
                state, count = after(state, decision), count + 1
        return count

    assert served("best-fit") == 3
    assert served("first-fit") == 2


def test_best_fit_fills_the_fuller_gpu_and_first_fit_the_first(make_state: MakeState) -> None:
    fleet = [make_state(), make_state(taken=[("3g.40gb", 0)], number=1)]
    best, first = choose(ONE, fleet, BEST), choose(ONE, fleet, FIRST)
    assert best is not None
    assert first is not None
    assert (best.node, first.node) == ("node-1", "node-0")


def test_equal_places_go_by_the_order_of_the_fleet(make_state: MakeState) -> None:
    fleet = [make_state(number=n) for n in range(3)]
    for ranking in POLICIES.values():
        decision = choose(ONE, fleet, ranking)
        assert decision is not None
        assert decision.node == "node-0"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "change",
    [{"unavailable": "Cordoned."}, {"dynamic": False}, {"mig_enabled": None}, {"mig_enabled": False, "busy": True}],
    ids=str,
)
def test_nothing_is_granted_where_nothing_may_be_made(
    make_state: MakeState, policy: str, change: dict[str, object]
) -> None:
    assert choose(ONE, [make_state(**change)], POLICIES[policy]) is None


def test_a_standing_device_goes_before_a_new_one(make_state: MakeState) -> None:
    state: GPUState = make_state(taken=[("1g.10gb", 2)], number=1)
    profile = state.gpu.profile(ProfileName(1, 10))
    assert profile is not None
    device = Device(Placement(state.gpu.gpu_uuid, 2, 1), profile, "MIG-standing", idle=True)
    fleet = [make_state(), GPUState(state.node, state.gpu, state.layout, (device,))]
    decision = choose(ONE, fleet, BEST)
    assert decision == Decision("node-1", state.gpu, device.placement, profile, "MIG-standing", cut=False)
    busy = Device(device.placement, profile, "MIG-standing", idle=False)
    decision = choose(ONE, [GPUState(state.node, state.gpu, state.layout, (busy,))], BEST)
    assert decision is not None
    assert decision.cut


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], "1g.20gb", id="the smallest that is enough"),
        pytest.param([("1g.20gb", s) for s in (2, 4, 6)], "1g.20gb", id="one place left"),
        pytest.param([("1g.10gb", s) for s in (0, 2, 4, 6)], None, id="nothing that large"),
    ],
)
def test_a_memory_request_takes_the_smallest_slice_that_is_free(
    make_state: MakeState, taken: list[tuple[str, int]], expected: str | None
) -> None:
    decision = choose(MemoryRequest(12), [make_state(taken=taken)], BEST)
    assert (None if decision is None else str(decision.profile and decision.profile.name)) == expected


def test_a_memory_request_goes_to_a_larger_slice_rather_than_wait(make_state: MakeState) -> None:
    small = make_state("a30-24gb", [("2g.12gb", 0), ("2g.12gb", 2)])
    decision = choose(MemoryRequest(12), [small, make_state(number=1)], BEST)
    assert decision is not None
    assert str(decision.profile and decision.profile.name) == "1g.20gb"


def test_a_whole_gpu_is_taken_uncut_before_another_is_switched(make_state: MakeState) -> None:
    fleet = [make_state(), make_state(number=1, mig_enabled=False)]
    decision = choose(WholeRequest(), fleet, BEST)
    assert decision is not None
    assert (decision.node, decision.cut, decision.device_uuid) == ("node-1", False, fleet[1].gpu.gpu_uuid)
    decision = choose(WholeRequest(), fleet[:1], BEST)
    assert decision is not None
    assert (decision.node, decision.cut, decision.device_uuid) == ("node-0", True, None)
    assert decision.placement == fleet[0].gpu.whole
    assert (decision.share, decision.memory_mib) == (1.0, fleet[0].gpu.memory_mib)


@pytest.mark.parametrize("request_", [ONE, MemoryRequest(1), WholeRequest()], ids=str)
def test_an_empty_fleet_serves_nothing(request_: Request) -> None:
    assert choose(request_, [], BEST) is None


def test_share_and_sizes_of_a_slice(make_gpu: MakeGPU) -> None:
    gpu: GPU = make_gpu("h100-80gb")
    decision = choose(SliceRequest(ProfileName(3, 40)), [GPUState("n", gpu, Layout(gpu))], BEST)
    assert decision is not None
    assert (decision.share, decision.memory_mib, decision.multiprocessors) == (0.5, 40448, 60)
