"""Quotas as an admin writes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mig_spawner.domain.quota import QuotaRule, Scope, Unit
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.difference import differences


def parse(*quotas: Any, **more: Any) -> Menu:
    return Menu.parse({"quotas": list(quotas), **more})


def test_each_limit_is_a_rule() -> None:
    written = {"per": "person", "name": "Small", "groups": ["a"], "slices": 2, "gpu_hours": 20, "window": "7d"}
    menu = parse(written, {"per": "hub", "memory_gb": 80, "contact": "bob"}, contact="ann")
    groups = frozenset({"a"})
    assert menu.quotas == (
        QuotaRule("Small", Scope.PERSON, Unit.SLICES, 2, groups=groups, contact="ann"),
        QuotaRule("Small", Scope.PERSON, Unit.GPU_HOURS, 20, timedelta(days=7), groups=groups, contact="ann"),
        QuotaRule("", Scope.HUB, Unit.MEMORY_GB, 80, contact="bob"),
    )
    assert len(menu) == 0


@pytest.mark.parametrize(
    ("quotas", "sentence"),
    [
        ("text", "a list of at most 200"),
        ([1], "Quota 1 of the menu must be a mapping"),
        ([{"per": "person", "slice": 1}], "'slice' is not known; did you mean `slices`"),
        ([{"slices": 1}], "Quota 1 of the menu: `per`"),
        ([{"per": "all", "slices": 1}], "`per` cannot be 'all'; write person, group or hub"),
        ([{"per": "person"}], "it limits nothing; write one of slices, memory_gb"),
        ([{"per": "person", "slices": 1.5}], "`slices` cannot be '1.5'; write a whole number"),
        ([{"per": "person", "slices": True}], "`slices` cannot be 'True'"),
        ([{"per": "person", "memory_gb": -1}], "`memory_gb` cannot be '-1'"),
        ([{"per": "person", "gpu_hours": 1}], "`gpu_hours` and `window` go together"),
        ([{"per": "person", "slices": 1, "window": "7d"}], "`gpu_hours` and `window` go together"),
        ([{"per": "person", "gpu_hours": 1, "window": "7w"}], "`window` cannot be '7w'; write seconds, or a span"),
        ([{"per": "group", "slices": 1, "users": ["a"]}], "`users` is for quotas per person"),
        ([{"per": "hub", "slices": 1, "groups": ["a"]}], "`groups` is for quotas per person or group"),
        ([{"per": "hub", "slices": 1}, {"per": "hub", "slices": 1, "name": "a\nb"}], "Quota 2 of the menu: `name`"),
    ],
)
def test_a_wrong_quota_is_refused_by_a_sentence(quotas: object, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=f"(?s){sentence}"):
        Menu.parse({"quotas": quotas})


def test_a_part_that_is_not_known_is_named() -> None:
    with pytest.raises(InvalidRequest, match="no part 'quota'; did you mean `quotas`"):
        Menu.parse({"entries": [], "quota": []})


def test_a_changed_quota_is_told() -> None:
    old, new = parse({"per": "person", "slices": 1}), parse({"per": "person", "slices": 2, "groups": ["a"]})
    assert differences(old, new) == [
        "the quota 2 slices per person (a) is new",
        "the quota 1 slices per person is gone",
    ]
