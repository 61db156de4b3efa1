"""Which quotas hold for whom, which is the tightest, and when there is room again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mig_spawner.domain.quota import (
    Quota,
    QuotaRule,
    Scope,
    Size,
    Spell,
    Standing,
    Unit,
    hours_left_at,
    quotas_of,
    room_at,
    tightest,
)
from mig_spawner.domain.rule import Person

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ANN = Person("ann", frozenset({"research", "staff"}))


def rule(scope: Scope, limit: float, unit: Unit = Unit.SLICES, **more: Any) -> QuotaRule:
    return QuotaRule(f"{scope} {limit:g}", scope, unit, limit, **more)


def held_for(person: Person, *rules: QuotaRule) -> list[tuple[str, float]]:
    return [(quota.subject, quota.rule.limit) for quota in quotas_of(rules, person)]


EVERYBODY = rule(Scope.PERSON, 1)
RESEARCH = rule(Scope.PERSON, 3, groups=frozenset({"research"}))
STAFF = rule(Scope.PERSON, 2, groups=frozenset({"staff"}))
HER = rule(Scope.PERSON, 0, users=frozenset({"ann"}))


@pytest.mark.parametrize(
    ("rules", "limit"),
    [
        ([EVERYBODY], 1),
        ([EVERYBODY, RESEARCH], 3),
        ([EVERYBODY, STAFF, RESEARCH], 3),
        ([EVERYBODY, STAFF, RESEARCH, HER], 0),
        ([rule(Scope.PERSON, 9, groups=frozenset({"other"})), EVERYBODY], 1),
    ],
)
def test_the_rule_closest_to_a_person_holds(rules: list[QuotaRule], limit: float) -> None:
    assert held_for(ANN, *rules) == [("ann", limit)]


def test_units_and_windows_are_quotas_of_their_own() -> None:
    day = rule(Scope.PERSON, 5, Unit.GPU_HOURS, window=DAY)
    week = rule(Scope.PERSON, 20, Unit.GPU_HOURS, window=7 * DAY)
    more = rule(Scope.PERSON, 30, Unit.GPU_HOURS, window=7 * DAY)
    memory = rule(Scope.PERSON, 40, Unit.MEMORY_GB)
    assert held_for(ANN, day, week, more, memory, RESEARCH) == [("ann", 3), ("ann", 40), ("ann", 5), ("ann", 30)]


def test_a_group_counts_together_and_who_is_in_several_counts_in_each() -> None:
    each, staff = rule(Scope.GROUP, 5), rule(Scope.GROUP, 2, groups=frozenset({"staff"}))
    assert held_for(ANN, each, staff) == [("research", 5), ("staff", 2)]
    assert held_for(Person("bob"), each, staff, rule(Scope.HUB, 9)) == [("", 9)]
    quota = Quota(each, "research")
    assert quota.counts(ANN)
    assert not quota.counts(Person("bob", frozenset({"staff"})))


@pytest.mark.parametrize(
    ("unit", "used", "size", "room"),
    [
        (Unit.SLICES, 1, Size(10, 0.1), True),
        (Unit.SLICES, 2, Size(0, 0), False),
        (Unit.MEMORY_GB, 1.0, Size(1, 9), True),
        (Unit.MEMORY_GB, 1.0, Size(1.5, 0), False),
        (Unit.COMPUTE_SHARE, 1 + 2 / 3, Size(0, 1 / 3), True),
        (Unit.GPU_HOURS, 1.9, Size(999, 999), True),
        (Unit.GPU_HOURS, 2.0, Size(0, 0), False),
    ],
)
def test_room_for_one_more(unit: Unit, used: float, size: Size, room: bool) -> None:
    assert Standing(Quota(rule(Scope.PERSON, 2, unit), "ann"), used).has_room(size) is room


def test_the_tightest_is_used_up_most_and_stays_so_longest() -> None:
    def standing(used: float, days: int | None) -> Standing:
        return Standing(Quota(EVERYBODY, "ann"), used, None if days is None else NOW + days * DAY)

    soon, late, never, worst = standing(1, 1), standing(1, 2), standing(1, None), standing(2, 1)
    assert tightest([soon, late]) is late
    assert tightest([soon, never, late]) is never
    assert tightest([never, worst]) is worst
    assert tightest([]) is None


def test_room_comes_when_enough_has_ended() -> None:
    held = [(NOW + DAY, 10.0), (NOW + 3 * DAY, 20.0), (None, 10.0)]
    assert room_at(40, 10, held) == NOW + DAY
    assert room_at(40, 20, held) == NOW + 3 * DAY
    assert room_at(40, 40, held) is None
    assert room_at(1, 1, [(None, 1.0)]) is None


def test_hours_leave_the_window() -> None:
    spells = [Spell(NOW - 5 * DAY, NOW - 4 * DAY, 0.5), Spell(NOW - 2 * DAY, NOW - DAY, 1.0)]
    assert hours_left_at(40, 7 * DAY, spells, NOW) is None
    at = hours_left_at(36, 7 * DAY, spells, NOW)
    assert at is not None
    assert abs(at - (NOW + 2 * DAY)) <= timedelta(minutes=2)
    assert hours_left_at(0, DAY, spells, NOW) is None


@given(
    limit=st.floats(0.1, 200),
    spells=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 100), st.floats(0.01, 1)), max_size=8),
)
def test_when_hours_are_left_again_there_are_some(limit: float, spells: list[tuple[int, int, float]]) -> None:
    made = [
        Spell(NOW - timedelta(hours=ago), min(NOW, NOW - timedelta(hours=ago) + timedelta(hours=length)), share)
        for ago, length, share in spells
    ]
    window = 7 * DAY
    at = hours_left_at(limit, window, made, NOW)
    if at is None:
        assert sum(spell.hours_since(NOW - window) for spell in made) < limit
    else:
        assert NOW < at <= NOW + window
        assert sum(spell.hours_since(at - window) for spell in made) < limit
