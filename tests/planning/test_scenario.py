"""The named settings, and the bound on them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import exp
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.gpu import GPU, Layout
from mig_spawner.domain.policy import POLICIES, Demand
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.bound import Repack
from mig_spawner.planning.fleet import Group, dynamic, gpus_of
from mig_spawner.planning.scenario import STUDIES, STUDY, demand_of, list_scenarios, of_trace, profile_of, scenario
from mig_spawner.planning.setup import follower
from mig_spawner.planning.simulation import Course, run
from mig_spawner.planning.trace import Arrival, in_order
from mig_spawner.planning.traffic import HOUR, MIXES, SIX, fits, held_out

GPUS = gpus_of([Group("a100-80gb", 10)])


@pytest.mark.parametrize(
    "name",
    [
        *STUDY[:2],
        "held-out-7-1.05",
        "mis-specified-notebook-as-skew-big",
        "moving-1.0",
        "saturation-uniform-1.0",
        "steady-bimodal-1.3",
        "fleet-8-notebook-1.0",
        "enough-90-uniform",
        "small-1.0",
    ],
)
def test_a_seed_gives_the_same_arrivals_and_another_others(name: str) -> None:
    assert name in list_scenarios()
    one, again = scenario(name, GPUS, span=5), scenario(name, GPUS, span=5)
    assert one.arrivals(1) == again.arrivals(1) != one.arrivals(2)
    assert in_order(one.arrivals(1))


@pytest.mark.parametrize(
    "name",
    ["", "steady-notebook", "steady-all-1.0", "held-out-7", "steady-uniform-10", "moving-0", "fleet-0-uniform-1.0"],
)
def test_an_unknown_scenario_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no scenario"):
        scenario(name, GPUS)


def test_a_load_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="more than 0"):
        scenario("steady-uniform-0.0", GPUS)


@pytest.mark.parametrize("name", ["steady-uniform-1.0", "saturation-uniform-1.0"])
def test_a_fleet_that_offers_nothing_of_it_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="No GPU of this fleet offers"):
        scenario(name, gpus_of([Group("a30-24gb", 2)]))


@pytest.mark.parametrize("mix", MIXES)
def test_arrivals_are_as_frequent_as_the_load_says_and_of_this_mix(mix: str) -> None:
    setting = scenario(f"steady-{mix}-1.0", GPUS, span=300)
    arrivals = setting.arrivals(3)
    assert len(arrivals) / 300 == pytest.approx(fits(GPUS, MIXES[mix]), rel=0.1)
    assert mean(a.duration for a in arrivals) == pytest.approx(HOUR, rel=0.35)
    counts = Counter(a.request for a in arrivals)
    for name, share in MIXES[mix].items():
        assert counts[SliceRequest(name)] / len(arrivals) == pytest.approx(share, abs=0.03)


def test_the_mix_of_a_moving_scenario_moves() -> None:
    arrivals = scenario("moving-1.0", GPUS, span=60).arrivals(1)
    small, big = SliceRequest(SIX[0]), SliceRequest(SIX[5])
    thirds = [Counter(a.request for a in arrivals if int(a.at / HOUR / 20) == n) for n in range(3)]
    assert thirds[0][small] > 4 * thirds[0][big]
    assert thirds[1][big] > 2 * thirds[1][small]


def test_who_is_told_of_a_move_is_told_when_it_happens() -> None:
    setting = scenario("moving-1.0", GPUS, span=60)
    assert [at / HOUR for at, _ in setting.moves] == [0, 20, 40]
    trace = setting.arrivals(1)
    follow = follower("share-weighted", GPUS, trace, setting.moves, rehearsed=100)
    told = {number: ranking for number in range(len(trace)) if (ranking := follow(number)) is not None}
    for number, (at, demand) in zip(told, setting.moves, strict=True):
        assert trace[number].at >= at
        assert number == 0 or trace[number - 1].at < at
        assert told[number] is POLICIES["share-weighted"].ranking(demand)


def test_every_name_of_a_study_is_that_of_scenarios() -> None:
    listed = list_scenarios()
    assert len(listed) == len(set(listed))
    for name, parts in STUDIES.items():
        assert name not in listed
        assert set(parts) <= set(listed)
    for name in listed:
        assert scenario(name, GPUS[:1], span=1).name == name


def test_a_fleet_of_so_many_gpus() -> None:
    for name, load in (("fleet-30-uniform-0.9", 0.9 * 30), ("enough-90-uniform", 0.8 * 100)):
        setting = scenario(name, GPUS, span=100)
        assert len(setting.gpus) == len({gpu.gpu_uuid for gpu in setting.gpus}) == int(name.split("-")[1])
        assert len(setting.arrivals(1)) / 100 == pytest.approx(load * fits(GPUS[:1], MIXES["uniform"]), rel=0.1)


def test_in_a_small_setting_the_past_says_nothing_and_all_profiles_are_alike() -> None:
    gpus = gpus_of([Group("a30-24gb", 2)])
    setting = scenario("small-1.0", gpus, span=30)
    arrivals = setting.arrivals(1)
    assert len(arrivals) / 3000 == pytest.approx(setting.forgetful, rel=0.1)
    assert set(Counter(a.request for a in arrivals)) == {
        SliceRequest(ProfileName.parse(n)) for n in ("1g.6gb", "2g.12gb", "4g.24gb")
    }
    durations = [a.duration / HOUR for a in arrivals]
    assert mean(durations) == pytest.approx(1, rel=0.1)
    # Who has stayed for an hour stays for another one as likely as everybody does.
    assert sum(d > 2 for d in durations) / sum(d > 1 for d in durations) == pytest.approx(exp(-1), abs=0.05)


def test_a_filling_ends_before_it_asks_for_too_much() -> None:
    setting = scenario("saturation-uniform-0.5", GPUS)
    sizes = {p.name: p.size for p in GPUS[0].profiles}
    asked = sum(sizes[a.request.profile] for a in setting.arrivals(1) if isinstance(a.request, SliceRequest))
    assert 40 - 8 < asked <= 40


def test_held_out_mixes_are_mixes_and_differ() -> None:
    mixes = [held_out(number) for number in range(1, 21)]
    assert all(sum(mix.values()) == pytest.approx(1) for mix in mixes)
    assert len({tuple(mix.values()) for mix in mixes}) == 20


def test_a_misinformed_policy_is_told_the_other_mix() -> None:
    setting = scenario("mis-specified-notebook-as-skew-big", GPUS)
    assert setting.told == Demand.of(MIXES["skew-big"])


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (SliceRequest(ProfileName(3, 40)), "3g.40gb"),
        (MemoryRequest(12), "1g.20gb"),
        (MemoryRequest(100), "None"),
        (WholeRequest(), "7g.80gb"),
        (DeviceRequest("MIG-a"), "None"),
    ],
)
def test_what_a_request_weighs_as(request_: WholeRequest, name: str) -> None:
    assert str(profile_of(request_, GPUS[:1])) == name


def test_the_demand_of_a_trace() -> None:
    trace = [Arrival(0, 1, WholeRequest()), Arrival(1, 1, MemoryRequest(5)), Arrival(2, 1, DeviceRequest("MIG-a"))]
    assert demand_of(trace, GPUS) == Demand.of({ProfileName(1, 10): 1, ProfileName(7, 80): 1})
    assert of_trace("t", GPUS, trace).arrivals(5) is trace


def fits_whole(gpu: GPU, names: tuple[ProfileName, ...], layout: Layout | None = None) -> bool:
    """Whether these fit on one GPU, by trying."""
    layout = layout or Layout(gpu)
    if not names:
        return True
    profile = gpu.profile(names[0])
    assert profile is not None
    return any(fits_whole(gpu, names[1:], layout.with_instance(profile, s)) for s in layout.starts(profile))


SMALL = [ProfileName(1, 6), ProfileName(2, 12), ProfileName(4, 24)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SMALL), min_size=1, max_size=8))
def test_the_bound_accepts_whatever_fits_on_two_gpus_in_some_way(names: list[ProfileName]) -> None:
    gpus = gpus_of([Group("a30-24gb", 2)])
    trace = [Arrival(float(n), 1000.0, SliceRequest(name)) for n, name in enumerate(names)]
    for side in product(range(2), repeat=len(names)):
        halves = [tuple(n for n, s in zip(names, side, strict=True) if s == k) for k in range(2)]
        if all(fits_whole(gpus[0], half) for half in halves):
            asked, accepted = Repack(gpus).accepted(trace)
            assert accepted == asked
            return


def test_no_policy_beats_the_bound_in_the_long_run() -> None:
    gpus = gpus_of([Group("a100-80gb", 4)])
    setting = scenario("steady-uniform-1.3", gpus, span=60)
    trace = setting.arrivals(1)
    asked, most = Repack(gpus).accepted(trace, warm_up=setting.warm_up)
    for policy in ("first-fit", "best-fit", "min-fragmentation", "priced"):
        (outcome,) = run(trace, dynamic(gpus), Course(POLICIES[policy], warm_up=setting.warm_up))
        assert outcome.asked_time == pytest.approx(asked)
        assert outcome.accepted_time < most


def test_there_is_no_bound_for_mixed_fleets_or_for_memory() -> None:
    with pytest.raises(InvalidRequest, match="one kind"):
        Repack(gpus_of([Group("a100-80gb", 1), Group("a30-24gb", 1)]))
    with pytest.raises(InvalidRequest, match="requests of profiles"):
        Repack(GPUS).accepted([Arrival(0, 1, MemoryRequest(5))])
