"""What people ask for, as shares."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy.demand import PARTS, UNKNOWN, Demand
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

MakeGPU = Callable[..., GPU]

ONE, TWO, SEVEN, MEDIA = ProfileName(1, 10), ProfileName(2, 20), ProfileName(7, 80), ProfileName(1, 10, "+me")


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf], ids=str)
def test_an_absurd_weight_is_refused(weight: float) -> None:
    with pytest.raises(InvalidRequest, match=r"weight of 1g\.10gb"):
        Demand.of({ONE: weight})


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param({ONE: 0, TWO: 0.0}, (), id="nothing but zeros"),
        pytest.param({TWO: 1, ONE: 3}, ((ONE, 750_000), (TWO, 250_000)), id="by name"),
        pytest.param({ONE: 5, TWO: 0}, ((ONE, PARTS),), id="a zero is left out"),
        pytest.param({ONE: 1e308, TWO: 1e308}, ((ONE, 500_000), (TWO, 500_000)), id="huge"),
        pytest.param({ONE: 5e-324, TWO: 5e-324}, ((ONE, 500_000), (TWO, 500_000)), id="tiny"),
    ],
)
def test_weights_become_parts(weights: dict[ProfileName, float], shares: tuple[tuple[ProfileName, int], ...]) -> None:
    assert Demand.of(weights).shares == shares


@given(st.dictionaries(st.sampled_from([ONE, TWO, SEVEN, MEDIA]), st.floats(0, 1e300)))
def test_parts_add_up_whatever_the_weights(weights: dict[ProfileName, float]) -> None:
    demand = Demand.of(weights)
    assert demand == Demand.of(dict(reversed(weights.items())))
    assert abs(sum(part for _, part in demand.shares) - PARTS) <= 2 or demand == UNKNOWN
    assert all(part > 0 for _, part in demand.shares)


@pytest.mark.parametrize(
    ("demand", "parts"),
    [
        pytest.param(UNKNOWN, [166_666, 0, *[166_666] * 5], id="unknown: the plain profiles alike"),
        pytest.param(
            Demand.of({ProfileName(1, 6): 1}), [166_666, 0, *[166_666] * 5], id="only other GPUs are asked for"
        ),
        pytest.param(Demand.of({MEDIA: 1, SEVEN: 3}), [0, 250_000, 0, 0, 0, 0, 750_000], id="media, if asked for"),
        pytest.param(
            Demand.of({ProfileName(1, 6): 1, SEVEN: 1}), [0, 0, 0, 0, 0, 0, 500_000], id="a share of all requests"
        ),
    ],
)
def test_the_shares_of_what_a_gpu_offers(make_gpu: MakeGPU, demand: Demand, parts: list[int]) -> None:
    assert list(demand.parts(make_gpu("a100-80gb").profiles)) == parts


OFFERED = [ONE, TWO, MEDIA]


def share(demand: Demand, name: ProfileName) -> float:
    return dict(demand.shares).get(name, 0) / PARTS


def test_without_requests_the_prior_counts() -> None:
    assert Demand.estimate([], OFFERED) == Demand.of({ONE: 1, TWO: 1})
    assert Demand.estimate([], []) == UNKNOWN


def test_the_prior_counts_as_so_many_requests() -> None:
    demand = Demand.estimate([ONE] * 50, OFFERED, prior_worth=50, half_life=1e12)
    assert share(demand, ONE) == pytest.approx(0.75, abs=1e-5)


def test_a_request_counts_half_after_the_half_life() -> None:
    demand = Demand.estimate([TWO, *[ONE] * 10], [], half_life=10)
    ones = sum(0.5 ** (k / 10) for k in range(10))
    assert share(demand, TWO) == pytest.approx(0.5 / (0.5 + ones), abs=1e-5)


def test_a_moving_mix_is_followed_however_long_the_history() -> None:
    """So long that the weight of the newest request, were it not scaled down at times, would be no number any more."""
    recent = [TWO] * 500
    demand = Demand.estimate([*[ONE] * 5000, *recent], OFFERED, prior_worth=1, half_life=2)
    assert share(demand, TWO) > 0.8
    assert demand == Demand.estimate(recent, OFFERED, prior_worth=1, half_life=2)
