"""Who may have what, and when."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from mig_spawner.domain.rule import Hours, Person, Rule
from mig_spawner.errors import InvalidRequest

BERLIN = ZoneInfo("Europe/Berlin")
ANN = Person("ann", frozenset({"research", "staff"}))
MONDAY_NOON = datetime(2026, 3, 2, 12, tzinfo=BERLIN)


def hours(*texts: str) -> tuple[Hours, ...]:
    return tuple(Hours.parse(text) for text in texts)


@pytest.mark.parametrize(
    ("rule", "refusal"),
    [
        (Rule(), ""),
        (Rule(groups=frozenset({"research"})), ""),
        (Rule(groups=frozenset({"teaching"})), "It is for the group teaching."),
        (Rule(groups=frozenset({"b", "a", "c"})), "It is for the groups a, b and c."),
        (Rule(users=frozenset({"ann"}), groups=frozenset({"teaching"})), ""),
        (Rule(users=frozenset({"bob"})), "It is for people whom an admin has named."),
        (
            Rule(users=frozenset({"bob"}), groups=frozenset({"teaching"})),
            "It is for the group teaching, and for people whom an admin has named.",
        ),
        (Rule(begins=date(2026, 3, 2), ends=date(2026, 3, 2)), ""),
        (Rule(begins=date(2026, 3, 3)), "It can be had from 2026-03-03 on."),
        (Rule(ends=date(2026, 3, 1)), "It could be had until 2026-03-01."),
        (Rule(hours=hours("Mon-Fri 08:00-18:00")), ""),
        (Rule(hours=hours("Sat-Sun")), "It can be had Sat-Sun (CET) only."),
        (Rule(hours=hours("Sat-Sun", "Mon 20:00-24:00")), "It can be had Sat-Sun and Mon 20:00-24:00 (CET) only."),
    ],
)
def test_a_rule_says_why_not(rule: Rule, refusal: str) -> None:
    assert rule.refusal(ANN, MONDAY_NOON) == refusal


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("Mon", ["02 00:00", "02 23:59"], ["01 23:59", "03 00:00"]),
        ("Mon-Wed 08:00-18:00", ["02 08:00", "04 17:59"], ["02 07:59", "04 18:00", "05 12:00"]),
        ("Fri-Mon", ["06 12:00", "08 12:00", "02 12:00"], ["03 12:00", "05 12:00"]),
        ("Mon 22:00-06:00", ["02 22:00", "03 05:59"], ["02 05:00", "03 06:00", "03 22:00"]),
        ("Sun 22:00-02:00", ["01 23:00", "02 01:59"], ["02 22:00"]),
    ],
)
def test_hours_of_the_week(text: str, inside: list[str], outside: list[str]) -> None:
    [parsed] = hours(text)
    assert [t for t in inside + outside if parsed.contain(datetime.fromisoformat(f"2026-03-{t}"))] == inside


@pytest.mark.parametrize(
    "text", ["", "Mo", "Mon 8", "Mon 08:00", "Mon 25:00-26:00", "Mon 08:60-09:00", "Mon 08:00-08:00"]
)
def test_what_are_no_hours_is_said(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Mon-Fri|whole day"):
        Hours.parse(text)
