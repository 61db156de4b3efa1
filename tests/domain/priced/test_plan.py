"""Plans: which worth wins on which traffic, and that all who have one decide alike."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from mig_spawner.domain.gpu import GPU, Layout, Placement
from mig_spawner.domain.policy import UNKNOWN, Demand, Plan, make_plan, planned
from mig_spawner.domain.policy.priced.chart import chart, shapes_of
from mig_spawner.domain.policy.priced.plan import CANDIDATES, RANGE, SETTINGS, candidate, kind_of
from mig_spawner.domain.policy.priced.ranking import BASE, by_formula
from mig_spawner.domain.policy.priced.rehearsal import Traffic, rehearse
from mig_spawner.domain.policy.priced.value import Choosiness, worth
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import find_model

NOTEBOOK = Demand.of(
    {
        ProfileName(1, 10): 0.55,
        ProfileName(1, 20): 0.12,
        ProfileName(2, 20): 0.15,
        ProfileName(3, 40): 0.10,
        ProfileName(4, 40): 0.03,
        ProfileName(7, 80): 0.05,
    }
)
SMALL = 600
"""Arrivals of a rehearsal that is only to run."""


def gpu(model: str = "a100-80gb", number: int = 0) -> GPU:
    return find_model(model).gpu(f"GPU-{number}")


def accepted(name: str, demand: Demand, model: str = "a100-80gb") -> float:
    one = gpu(model)
    shapes = shapes_of(one, demand)
    made = chart(one.grid, shapes)
    assert made is not None
    return rehearse(made, candidate(name, one.grid, shapes), Traffic(40, 6000, (1, 2)))


@pytest.mark.parametrize("demand", [UNKNOWN, NOTEBOOK], ids=["all alike", "notebooks"])
def test_prices_beat_min_fragmentation_where_notebooks_come_and_go(demand: Demand) -> None:
    assert accepted("priced", demand) > accepted("min-fragmentation", demand) + 0.01


@pytest.mark.parametrize("name", CANDIDATES)
@pytest.mark.parametrize("model", ["a100-80gb", "a30-24gb", "rtx-pro-6000"])
def test_the_empty_gpu_is_worth_most_or_as_much_and_all_is_in_range(name: str, model: str) -> None:
    one = gpu(model)
    worths = candidate(name, one.grid, shapes_of(one, UNKNOWN))
    assert min(worths.values()) == 0
    assert max(worths.values()) == RANGE
    if name != "min-fragmentation":  # for it a full GPU is as good as an empty one
        assert worths[0, 0] == RANGE


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_an_instance_more_is_never_worth_more(setting: Choosiness) -> None:
    one = gpu("a30-24gb")
    made = chart(one.grid, shapes_of(one, UNKNOWN))
    assert made is not None
    worths = worth(made, setting)
    values = [worths[key] for key in made.keys]
    for state, ways in enumerate(made.grow):
        assert all(values[after] <= values[state] + 1e-9 for shape in ways for after in shape)


def test_the_other_half_of_an_a30_is_worth_the_same() -> None:
    one = gpu("a30-24gb")
    worths = candidate("priced", one.grid, shapes_of(one, UNKNOWN))
    assert worths[0b0001, 0b0001] == worths[0b0010, 0b0010] == worths[0b1000, 0b1000]
    assert worths[0b0011, 0b0001] == worths[0b1100, 0b0100] != worths[0b0011, 0b0011]


def test_a_plan_takes_the_candidate_that_accepted_most_for_each_kind() -> None:
    fleet = [gpu(number=1), gpu("a30-24gb", 2), gpu("h100-80gb", 3), gpu(number=4)]
    plan = make_plan(fleet, NOTEBOOK, arrivals=SMALL)
    assert set(plan.kinds) == {kind_of(one) for one in fleet}
    for kind in plan.kinds.values():
        assert set(kind.accepted) == set(CANDIDATES)
        assert kind.accepted[kind.winner] == max(kind.accepted.values())
    assert make_plan(reversed(fleet), NOTEBOOK, arrivals=SMALL) == plan


def test_gpus_without_mig_are_in_no_plan() -> None:
    assert make_plan([GPU("GPU-t4", "Tesla T4", 15360, 40)], UNKNOWN) == Plan()


def test_a_kind_is_what_it_offers_not_what_it_is_called() -> None:
    one, other = gpu(number=1), gpu(number=2)
    assert kind_of(one) == kind_of(other)
    assert kind_of(one) != kind_of(gpu("a100-40gb"))
    shuffled = GPU("GPU-9", "Another", 1, 1, tuple(reversed(one.profiles)))
    assert kind_of(shuffled) == kind_of(one)


def test_a_planned_ranking_takes_what_costs_least_worth() -> None:
    one = gpu()
    plan = make_plan([one], NOTEBOOK, arrivals=SMALL)
    ranking, worths = planned(plan), plan.kinds[kind_of(one)].worth
    layout = Layout(one).with_instance(one.profiles[0], 6)
    for profile in one.profiles:
        ranked = sorted(layout.starts(profile), key=lambda start: ranking(layout, profile, start))
        left = [worths[after.mask, after.heads] for s in ranked for after in [layout.with_instance(profile, s)]]
        assert all(a >= b for a, b in pairwise(left))


def test_a_kind_that_no_plan_knows_goes_by_the_closed_formula() -> None:
    plan = make_plan([gpu()], NOTEBOOK, arrivals=SMALL)
    new, base = gpu("a30-24gb"), by_formula(BASE, NOTEBOOK)
    for profile in new.profiles:
        for start in profile.starts:
            assert planned(plan)(Layout(new), profile, start) == base(Layout(new), profile, start)


def worths_of(model: str) -> tuple[GPU, Mapping[tuple[int, int], int]]:
    one = gpu(model)
    return one, candidate("priced", one.grid, shapes_of(one, UNKNOWN))


@pytest.mark.parametrize(
    ("place", "like"),
    [
        pytest.param(Placement("", 0, 3), (0b1111, 0b0001), id="no shape is three long: as if four were taken"),
        pytest.param(Placement("", 1, 2), (0b1111, 0b0001), id="across the middle"),
    ],
)
def test_a_state_that_nobody_planned_for_has_a_worth_nonetheless(place: Placement, like: tuple[int, int]) -> None:
    one, worths = worths_of("a30-24gb")
    layout = Layout(one).with_taken(place)
    ranking = by_formula("priced", UNKNOWN)
    profile = next(p for p in one.profiles if p.size == 1)
    start = layout.starts(profile)[0]
    rank = ranking(layout, profile, start)
    after = layout.with_instance(profile, start)
    masks = {mask for mask, _ in worths}

    def value(mask: int) -> int:
        above = min((m for m in masks if m & mask == mask), key=lambda m: (m.bit_count(), m))
        found = [v for (m, _), v in worths.items() if m == above]
        return sum(found) // len(found)

    assert rank.gpu == value(layout.mask) - value(after.mask)
    assert like in worths


def test_a_mask_that_no_state_covers_is_worth_nothing() -> None:
    one = GPU("GPU-x", "m", 1, 1, gpu("a30-24gb").profiles)
    ranking = by_formula("priced", UNKNOWN)
    layout = Layout(one, 1 << 7)
    profile = next(p for p in one.profiles if p.size == 1)
    assert ranking(layout, profile, 0).gpu == 0
