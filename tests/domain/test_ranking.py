"""What each policy is known for, and the numbers behind it, worked out by hand on an A100 80GB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import GPU, Layout
from mig_spawner.domain.policy import DEFAULT_POLICY, POLICIES, UNKNOWN, Demand, Policy, choose
from mig_spawner.domain.policy.fit import best_index
from mig_spawner.domain.policy.fragmentation import fragmentation, useless
from mig_spawner.domain.policy.share import spent
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest

MakeGPU = Callable[..., GPU]
MakeState = Callable[..., GPUState]
Taken = list[tuple[str, int]]

SIX = 166_666
"""The prior of each of six plain profiles, in parts per million."""


def wants(name: str) -> SliceRequest:
    return SliceRequest(ProfileName.parse(name))


def demand(**shares: float) -> Demand:
    """`demand(p1g_10gb=1)`: dots are no letters."""
    return Demand.of({ProfileName.parse(k.removeprefix("p").replace("_", ".")): v for k, v in shares.items()})


@pytest.mark.parametrize(
    ("model", "name", "order"),
    [
        pytest.param("a100-80gb", "1g.10gb", [6, 4, 5, 0, 1, 2, 3], id="1g"),
        pytest.param("a100-80gb", "1g.20gb", [6, 4, 0, 2], id="1g, double memory"),
        pytest.param("a100-80gb", "2g.20gb", [4, 0, 2], id="2g"),
        pytest.param("a100-80gb", "3g.40gb", [4, 0], id="3g"),
        pytest.param("a100-80gb", "4g.40gb", [0], id="4g"),
        pytest.param("a100-80gb", "7g.80gb", [0], id="7g"),
        pytest.param("a100-40gb", "1g.5gb", [6, 4, 5, 0, 1, 2, 3], id="A100 40GB"),
        pytest.param("h100-80gb", "1g.10gb+me", [6, 4, 5, 0, 1, 2, 3], id="with media, where the plain one goes"),
        pytest.param("a30-24gb", "1g.6gb", [0, 1, 2, 3], id="A30: all starts alike"),
        pytest.param("rtx-pro-6000", "1g.24gb", [0, 3, 6, 9], id="RTX PRO: all starts alike"),
    ],
)
def test_the_best_index(make_gpu: MakeGPU, model: str, name: str, order: list[int]) -> None:
    gpu = make_gpu(model)
    profile = gpu.profile(ProfileName.parse(name))
    assert profile is not None
    index = best_index(gpu.profiles, profile)
    assert sorted(index, key=index.__getitem__) == order


@pytest.mark.parametrize("policy", ["driver-order", "best-fit"])
def test_seven_1g_fill_a_gpu_in_the_order_of_the_driver(make_state: MakeState, policy: str) -> None:
    state: GPUState = make_state()
    starts = []
    while (decision := choose(wants("1g.10gb"), [state], POLICIES[policy])) is not None:
        assert decision.profile is not None
        starts.append(decision.placement.start)
        state = replace(state, layout=state.layout.with_instance(decision.profile, starts[-1]))
    assert starts == [6, 4, 5, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fleet", "name", "chosen"),
    [
        pytest.param(
            [[("1g.10gb", 0)], []],
            "1g.10gb",
            {"first-fit": (0, 1), "driver-order": (0, 6), "worst-fit": (1, 6)},
            id="the first GPU, though the second has a lower start",
        ),
        pytest.param(
            [[], [("3g.40gb", 0)]],
            "1g.10gb",
            {"best-fit": (1, 6), "worst-fit": (0, 6), "first-fit": (0, 0), "driver-order": (0, 6)},
            id="the fullest, the emptiest, the first",
        ),
        pytest.param(
            [[("1g.10gb", 0)], [("3g.40gb", 0)]],
            "1g.10gb",
            {
                "best-fit": (1, 6),
                "min-fragmentation": (1, 6),
                "share-weighted": (0, 1),
                "expected-fragmentation": (0, 1),
            },
            id="the high 3g is kept by those who ask what comes next",
        ),
        pytest.param(
            [[], [("1g.10gb", 4)]],
            "2g.20gb",
            {
                "best-fit": (1, 0),
                "min-fragmentation": (0, 4),
                "share-weighted": (1, 0),
                "expected-fragmentation": (1, 0),
            },
            id="only MFI would rather break a whole GPU",
        ),
        pytest.param(
            [[], [("1g.10gb", 0)]],
            "1g.10gb",
            {"best-fit": (1, 6), "min-fragmentation": (1, 1), "share-weighted": (1, 1)},
            id="best-fit breaks the high 3g, having broken the low one",
        ),
    ],
)
def test_what_each_policy_is_known_for(
    make_state: MakeState, fleet: list[Taken], name: str, chosen: dict[str, tuple[int, int]]
) -> None:
    states = [make_state(taken=taken, number=number) for number, taken in enumerate(fleet)]
    found = {}
    for policy in chosen:
        decision = choose(wants(name), states, POLICIES[policy])
        assert decision is not None
        found[policy] = (int(decision.node.removeprefix("node-")), decision.placement.start)
    assert found == chosen


@pytest.mark.parametrize(
    ("policy", "asked", "start"),
    [
        pytest.param("share-weighted", demand(p2g_20gb=1), 6, id="SW, only 2g come: 6 is in none of its windows"),
        pytest.param("share-weighted", demand(p4g_40gb=1), 4, id="SW, only 4g come: the first beyond it"),
        pytest.param("share-weighted", demand(p7g_80gb=1), 0, id="SW, only 7g come: all is lost anyway"),
        pytest.param("expected-fragmentation", demand(p1g_10gb=1), 0, id="FGD, only 1g come: it never minds"),
        pytest.param(
            "expected-fragmentation", demand(p3g_40gb=1), 0, id="FGD, only 3g come: one half is like the other"
        ),
        pytest.param("expected-fragmentation", demand(p4g_40gb=1), 4, id="FGD, only 4g come"),
        pytest.param("min-fragmentation", demand(p4g_40gb=1), 6, id="MFI does not ask"),
        pytest.param("best-fit", demand(p4g_40gb=1), 6, id="best-fit does not ask"),
    ],
)
def test_where_a_1g_goes_on_an_empty_gpu_by_demand(
    make_state: MakeState, policy: str, asked: Demand, start: int
) -> None:
    decision = choose(wants("1g.10gb"), [make_state()], POLICIES[policy].ranking(asked))
    assert decision is not None
    assert decision.placement.start == start


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], 0, id="empty"),
        pytest.param(
            [("1g.10gb", 6)], 1 + 2 + 0 + 4 + 0, id="1g at 6: itself, 1g double, the high 3g; 7g is too large"
        ),
        pytest.param([("1g.10gb", 4)], 1 + 2 + 2 + 4 + 0, id="1g at 4: a 2g more"),
        pytest.param([("1g.10gb", 0)], 1 + 2 + 2 + 4 + 4, id="1g at 0: the 4g more"),
        pytest.param([("3g.40gb", 0)], 4 + 4 + 4 + 4 + 4, id="3g at 0"),
        pytest.param([("3g.40gb", 0), ("1g.10gb", 6)], 5 + 6 + 4, id="three slices free: no 3g to be missed"),
        pytest.param([("7g.80gb", 0)], 0, id="full"),
    ],
)
def test_fragmentation_as_in_the_mfi_paper(make_state: MakeState, taken: Taken, expected: int) -> None:
    assert fragmentation(make_state(taken=taken).layout) == expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], 1 + 0 + 2 + 0 + 4 + 0, id="empty: the eighth slice and what 2g and 4g cannot reach"),
        pytest.param([("1g.10gb", 6)], 1 + 1 + 1 + 3 + 3 + 7, id="1g at 6"),
        pytest.param([("3g.40gb", 0)], 1 + 0 + 2 + 0 + 4 + 4, id="3g at 0"),
        pytest.param([("7g.80gb", 0)], 0, id="full"),
    ],
)
def test_slices_that_the_next_request_cannot_use(make_state: MakeState, taken: Taken, expected: int) -> None:
    assert useless(make_state(taken=taken).layout, UNKNOWN) == expected * SIX


def test_the_demand_weighs_what_is_useless(make_state: MakeState) -> None:
    layout = make_state(taken=[("1g.10gb", 6)]).layout
    assert useless(layout, demand(p7g_80gb=1)) == 7_000_000
    assert useless(layout, demand(p7g_80gb=1, p1g_10gb=3)) == 7 * 250_000 + 1 * 750_000


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], 7 * 1 + 4 * 4 + 3 * 4 + 2 * 16 + 1 * 16 + 1 * 64, id="empty"),
        pytest.param([("1g.10gb", 6)], 6 * 1 + 3 * 4 + 3 * 4 + 1 * 16 + 1 * 16, id="1g at 6"),
        pytest.param([("1g.10gb", 4)], 6 * 1 + 3 * 4 + 2 * 4 + 1 * 16 + 1 * 16, id="1g at 4"),
        pytest.param([("1g.10gb", 0)], 6 * 1 + 3 * 4 + 2 * 4 + 1 * 16, id="1g at 0"),
        pytest.param([("7g.80gb", 0)], 0, id="full"),
    ],
)
def test_worth_that_is_left(make_state: MakeState, taken: Taken, expected: int) -> None:
    assert spent(make_state(taken=taken).layout, UNKNOWN) == -expected * SIX


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda p: p.name)
def test_equal_demands_share_what_was_worked_out(policy: Policy) -> None:
    one, other = demand(p1g_10gb=1, p2g_20gb=1), demand(p2g_20gb=5, p1g_10gb=5)
    assert policy.ranking(one) is policy.ranking(other)
    assert (policy.ranking(one) is policy.ranking()) is not policy.heeds_demand


def test_policies_are_known_by_their_names() -> None:
    assert all(policy.name == name and policy.summary.endswith(".") for name, policy in POLICIES.items())
    assert DEFAULT_POLICY in POLICIES


def test_a_ranking_is_of_the_state_not_of_the_gpu(make_gpu: MakeGPU) -> None:
    one, other = make_gpu(number=0), make_gpu(number=1)
    for policy in POLICIES.values():
        assert policy(Layout(one), one.profiles[0], 3) == policy(Layout(other), one.profiles[0], 3)


@pytest.mark.parametrize("models", [("rtx-pro-6000", "a100-96gb-pg506"), ("a100-96gb-pg506", "rtx-pro-6000")])
@pytest.mark.parametrize("policy", ["best-fit", "worst-fit", "expected-fragmentation", "share-weighted"])
@pytest.mark.parametrize("taken", [[], [("1g.24gb", 6)]], ids=["empty", "a quarter taken"])
def test_a_slice_counts_as_its_part_of_the_gpu(
    make_state: MakeState, models: tuple[str, str], policy: str, taken: Taken
) -> None:
    """1g.24gb is 3 of 12 slices on the one and 2 of 8 on the other, a quarter of both: neither may go first for its slices."""
    fleet = [make_state(model, taken, number) for number, model in enumerate(models)]
    decision = choose(wants("1g.24gb"), fleet, POLICIES[policy].ranking(demand(p1g_24gb=1)))
    assert decision is not None
    assert decision.node == "node-0"
