"""Whatever a form, a link or a script sends becomes an entry of the menu or a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.options import BY_NEED, FIELD, NEED_FIELD, choose, stored, take
from mig_spawner.wire.menu import Menu


@pytest.fixture
def parsed(menu: list[dict[str, Any]]) -> Menu:
    return Menu.parse(menu)


@pytest.mark.parametrize(
    ("value", "entry_id"),
    [
        (None, "none"),
        ("", "none"),
        ({}, "none"),
        ({"choice": None}, "none"),
        ("small", "small"),
        ({"choice": "small"}, "small"),
        ("1g.10gb", "small"),
        ("mig-1g.10gb", "small"),
        ({"profile": "1G.10GB"}, "small"),
        ({"profile": "3g.40gb", "min_memory": None}, "medium"),
        ({"min_memory": 12}, "about-12"),
        ({"min_memory": 9.5}, "small"),
        ({"min_memory": 13}, "medium"),
        ("none", "none"),
        ("whole", "whole"),
    ],
    ids=str,
)
def test_what_means_which_entry(parsed: Menu, value: object, entry_id: str) -> None:
    assert choose(value, parsed).id == entry_id


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("7g.80gb", "7g.80gb is not on the menu.*none, small, medium"),
        ("gone", "'gone' is not on the menu of this hub. Choose one of: none, small"),
        ("small ", "not on the menu"),
        ("1g.10gb\n; rm -rf /", "not on the menu"),
        ("x" * 10_000, "10000 characters long"),
        ("\u0000\u202e<script>", "not on the menu"),
        (["small"], "not a list"),
        (True, "not true or false"),
        (5, "not a number"),
        ({"choice": ["small"]}, "`choice` of the option `mig` is a text, not a list"),
        ({"choice": {"choice": "small"}}, "is a text, not an object"),
        ({"choice": "small", "profile": "1g.10gb"}, "one of choice, profile, min_memory, not several"),
        ({"slice": "1g.10gb"}, "has no field 'slice'"),
        ({"<b>" * 100: 1}, "has no field '<b><b>"),
        ({"profile": "banana"}, "'banana' is no MIG profile"),
        ({"profile": "1c.3g.40gb"}, "compute instance"),
        ({"profile": "x" * 500}, "500 characters"),
        ({"min_memory": "12"}, "a number of GB such as 12, not a text"),
        ({"min_memory": True}, "not true or false"),
        ({"min_memory": -1}, "more than 0"),
        ({"min_memory": 10**400}, "at most 10000"),
        ({"min_memory": float("inf")}, "at most 10000"),
        ({"min_memory": 41}, "No slice on the menu of this hub has 41 GB"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_had_is_refused_by_a_sentence(parsed: Menu, value: object, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as refused:
        choose(value, parsed)
    assert len(str(refused.value)) < 400


def test_what_is_stored_is_understood_again(parsed: Menu) -> None:
    for entry in parsed:
        assert choose(stored(entry)["mig"], parsed) == entry


def test_our_fields_are_taken_out_and_the_rest_is_left_alone() -> None:
    data = {"mig_choice": ["small"], "profile": ["large"], "profile-option-large--gpu": ["x"]}
    assert take(data) == ("small", {"profile": ["large"], "profile-option-large--gpu": ["x"]})
    assert take({"mig": ["1g.10gb"]}) == take({"opt-mig": ["1g.10gb"]}) == ("1g.10gb", {})
    assert take({}) == (None, {})
    assert "mig_choice" in data


@pytest.mark.parametrize("data", [{"mig_choice": ["a", "b"]}, {"mig_choice": ["a"], "mig": ["b"]}, {"mig": [{"a": 1}]}])
def test_a_field_that_came_twice_or_is_a_file_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        take(data)


@pytest.mark.parametrize(("typed", "wanted"), [("12", 12.0), (" 8,5 ", 8.5), ("0.5", 0.5)])
def test_a_need_is_read_as_people_type_it(typed: str, wanted: float) -> None:
    assert take({FIELD: [BY_NEED], NEED_FIELD: [typed], "x": ["1"]}) == ({"min_memory": wanted}, {"x": ["1"]})


@pytest.mark.parametrize("typed", [[""], ["twelve"], [], ["1", "2"], ["9" * 300], None, ["1e"]])
def test_a_need_that_is_no_number_is_refused(typed: object) -> None:
    with pytest.raises(InvalidRequest, match=r"GB|characters"):
        take({FIELD: [BY_NEED], NEED_FIELD: typed})


def test_a_need_counts_only_when_it_is_chosen() -> None:
    assert take({FIELD: ["small"], NEED_FIELD: ["12"]}) == ("small", {})
