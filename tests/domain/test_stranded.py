"""How broken up a GPU is, as a number and as a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy import Demand, stranded
from mig_spawner.domain.profile import ProfileName

MakeState = Callable[..., GPUState]


@pytest.mark.parametrize(
    ("taken", "sentence"),
    [
        pytest.param([], "", id="empty"),
        pytest.param([("7g.80gb", 0)], "", id="full"),
        pytest.param([("4g.40gb", 0)], "", id="the better half is whole"),
        pytest.param(
            [("1g.10gb", 0), ("1g.10gb", 4)],
            "6 of 8 memory slices are free, yet no 3g.40gb fits.",
            id="both halves broken",
        ),
        pytest.param([("3g.40gb", 4)], "", id="a 3g and a 4g fit still"),
        pytest.param([("3g.40gb", 0)], "", id="a 3g fits, if no 4g"),
        pytest.param(
            [("3g.40gb", 0), ("1g.10gb", 5), ("1g.10gb", 6)],
            "2 of 8 memory slices are free, yet no 1g.20gb fits.",
            id="two that are apart",
        ),
    ],
)
def test_what_is_free_and_does_not_fit(make_state: MakeState, taken: list[tuple[str, int]], sentence: str) -> None:
    told = stranded(make_state(taken=taken))
    assert told is not None
    assert told.sentence == sentence


def test_the_part_is_what_the_demand_cannot_use(make_state: MakeState) -> None:
    state = make_state(taken=[("3g.40gb", 0)])
    for name, part in (("1g.10gb", 1 / 8), ("3g.40gb", 0), ("7g.80gb", 0.5)):
        told = stranded(state, Demand.of({ProfileName.parse(name): 1}))
        assert told is not None
        assert told.part == pytest.approx(part)


@pytest.mark.parametrize("change", [{"unavailable": "cordoned"}, {"dynamic": False}, {"mig_enabled": None}], ids=str)
def test_where_nothing_is_cut_nothing_is_stranded(make_state: MakeState, change: dict[str, object]) -> None:
    assert stranded(make_state(**change)) is None
