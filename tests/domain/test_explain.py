"""Why a lease goes where it goes, and that the reasons are those of the decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import GPU, Layout, Placement
from mig_spawner.domain.policy import POLICIES, choose, explain
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.testing.gpu import find_model

MakeState = Callable[..., GPUState]

ONE, FOUR, SEVEN = (SliceRequest(ProfileName.parse(n)) for n in ("1g.10gb", "4g.40gb", "7g.80gb"))
BEST = POLICIES["best-fit"]


@pytest.mark.parametrize(
    ("request_", "change", "taken", "why"),
    [
        pytest.param(ONE, {"unavailable": "node n is cordoned"}, [], "Nothing is granted here now: node n is cordoned.",
                     id="cordoned"),
        pytest.param(ONE, {"dynamic": False}, [], "an admin's", id="static"),
        pytest.param(ONE, {"mig_enabled": None}, [], "no MIG mode", id="no MIG"),
        pytest.param(ONE, {"mig_enabled": False, "busy": True}, [], "as a whole", id="whole"),
        pytest.param(SliceRequest(ProfileName(1, 5)), {}, [], "offers no profile", id="not offered"),
        pytest.param(FOUR, {}, [("1g.10gb", 0)], "7 of 8 memory slices are free, yet no 4g.40gb fits.", id="broken up"),
        pytest.param(WholeRequest(), {"dynamic": False}, [], "fixed partitions", id="static, whole"),
        pytest.param(WholeRequest(), {}, [("1g.10gb", 0)], "Part of it is taken.", id="taken, whole"),
        pytest.param(WholeRequest(), {"mig_enabled": False, "busy": True}, [], "A process runs", id="busy, whole"),
    ],
)  # fmt: skip
def test_why_a_gpu_cannot_serve(
    make_state: MakeState, request_: Request, change: dict[str, object], taken: list[tuple[str, int]], why: str
) -> None:
    told = explain(request_, [make_state(taken=taken, **change)], BEST)
    assert told.decision is None
    assert told.summary == f"None of 1 GPUs can serve {request_} now."
    (candidate,) = told.candidates
    assert why in candidate.why
    assert (candidate.score, candidate.start, candidate.profile) == (None, None, None)


def test_the_chosen_comes_first_then_the_able_then_the_others(make_state: MakeState) -> None:
    fleet = [make_state(unavailable="lost"), make_state(number=1), make_state(taken=[("3g.40gb", 0)], number=2)]
    told = explain(ONE, fleet, BEST)
    assert [c.node for c in told.candidates] == ["node-2", "node-1", "node-0"]
    assert told.candidates[0].why == "Chosen. Slice 6 is the best of its starts 4, 5, 6; 4 of 8 are taken."
    assert told.summary == f"2 of 3 GPUs could serve 1g.10gb; best is 1g.10gb at slice 6 of {fleet[2].gpu.gpu_uuid}."
    short = explain(ONE, fleet, BEST, shown=1)
    assert (len(short.candidates), short.left_out) == (1, 2)


def test_equals_go_by_the_order_of_the_fleet_and_it_says_so(make_state: MakeState) -> None:
    told = explain(SEVEN, [make_state(number=n) for n in range(3)], BEST)
    assert told.candidates[0].node == "node-0"
    assert "its only start" in told.candidates[0].why
    assert told.summary.endswith("3 are equally good; the first in the order of the fleet is taken.")


def test_a_standing_device_is_the_reason(make_state: MakeState) -> None:
    state = make_state(taken=[("1g.10gb", 2)], number=1)
    profile = state.gpu.profile(ProfileName(1, 10))
    assert profile is not None
    device = Device(Placement(state.gpu.gpu_uuid, 2, 1), profile, "MIG-standing", idle=True)
    told = explain(ONE, [make_state(), replace(state, devices=(device,))], BEST)
    assert told.candidates[0].node == "node-1"
    assert "stands here already" in told.candidates[0].why


@pytest.mark.parametrize(
    ("uuid", "idle", "why"),
    [
        pytest.param("MIG-a", True, "Chosen. The device stands here, idle.", id="idle"),
        pytest.param("MIG-a", False, "The device stands here, and is in use.", id="in use"),
        pytest.param("MIG-b", True, "It has no such device.", id="another"),
    ],
)
def test_a_device_by_name(make_state: MakeState, uuid: str, idle: bool, why: str) -> None:
    state = make_state(taken=[("1g.10gb", 2)])
    profile = state.gpu.profile(ProfileName(1, 10))
    assert profile is not None
    device = Device(Placement(state.gpu.gpu_uuid, 2, 1), profile, "MIG-a", idle=idle)
    told = explain(DeviceRequest(uuid), [replace(state, devices=(device,)), make_state(number=1)], BEST)
    assert told.candidates[0].why == why
    assert told.candidates[1].why == "It has no such device."
    assert (told.decision is not None) == why.startswith("Chosen")


def test_an_uncut_gpu_goes_before_one_in_mig_mode(make_state: MakeState) -> None:
    told = explain(WholeRequest(), [make_state(), make_state(number=1, mig_enabled=False)], BEST)
    assert [c.why for c in told.candidates] == [
        "Chosen. Free and uncut.",
        "Free, but in MIG mode: uncut GPUs go first.",
    ]
    assert "best is the whole GPU of" in told.summary


MODELS = [find_model(name) for name in ("a30-24gb", "a100-80gb", "rtx-pro-6000")]
REQUESTS: list[Request] = [ONE, FOUR, MemoryRequest(12), MemoryRequest(24), WholeRequest()]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), policy=st.sampled_from(sorted(POLICIES)), request_=st.sampled_from(REQUESTS))
def test_the_explanation_is_that_of_the_decision(data: st.DataObject, policy: str, request_: Request) -> None:
    fleet = []
    for number, model in enumerate(data.draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=4))):
        gpu: GPU = model.gpu(f"GPU-{number}")
        layout = Layout(gpu)
        for _ in range(data.draw(st.integers(0, 4))):
            places = [(p, s) for p in gpu.profiles for s in layout.starts(p)]
            if places:
                layout = layout.with_instance(*data.draw(st.sampled_from(places)))
        unavailable = data.draw(st.sampled_from([None, None, "cordoned"]))
        fleet.append(GPUState(f"node-{number}", gpu, layout, unavailable=unavailable))
    told = explain(request_, fleet, POLICIES[policy], shown=10)
    assert told.decision == choose(request_, fleet, POLICIES[policy])
    assert {c.gpu_uuid for c in told.candidates} == {state.gpu.gpu_uuid for state in fleet}
    able = [c for c in told.candidates if c.score is not None]
    if told.decision is None:
        assert not able
    else:
        assert told.candidates[0].gpu_uuid == told.decision.gpu.gpu_uuid
        assert told.candidates[0].start == told.decision.placement.start
        scores = [c.score for c in able if c.score is not None]
        assert scores == sorted(scores)
