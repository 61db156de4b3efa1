"""The best possible on a handful of GPUs, against formulas that are known and policies that are played."""

from __future__ import annotations

import pytest

from mig_spawner.domain.policy import Demand
from mig_spawner.domain.profile import ProfileName
from mig_spawner.planning import optimum as optima
from mig_spawner.planning.fleet import Group, dynamic, gpus_of
from mig_spawner.planning.need import refused
from mig_spawner.planning.optimum import optimum
from mig_spawner.planning.scenario import scenario
from mig_spawner.planning.setup import ranking_for
from mig_spawner.planning.simulation import Course, run


def name(text: str) -> ProfileName:
    return ProfileName.parse(text)


@pytest.mark.parametrize(
    ("model", "count", "profile", "servers"),
    [
        ("a30-24gb", 1, "1g.6gb", 4),
        ("a30-24gb", 2, "2g.12gb", 4),
        ("a30-24gb", 3, "4g.24gb", 3),
        ("a100-80gb", 2, "3g.40gb", 4),
    ],
)
def test_where_all_ask_for_the_same_it_is_erlangs_formula(model: str, count: int, profile: str, servers: int) -> None:
    gpus = gpus_of([Group(model, count)])
    for rate in (0.5, 3.0):
        found = optimum(gpus, Demand.of({name(profile): 1}), rate)
        assert found == pytest.approx(1 - refused(servers, rate), abs=2e-5)


def test_it_says_no_where_that_pays() -> None:
    """Whoever takes a single 1g loses a 4g that is four times as much, and of which many come."""
    (gpu,) = gpus_of([Group("a30-24gb", 1)])
    rates = {"1g.6gb": 0.01, "4g.24gb": 10.0}
    found = optimum([gpu], Demand.of({name(p): rate for p, rate in rates.items()}), 10.01)
    asked = 0.01 * 1 + 10 * 4
    assert found == pytest.approx((1 - refused(1, 10.0)) * 40 / asked, abs=2e-5)


def test_no_policy_does_better_and_most_could_not_even_if_all_could_be_moved() -> None:
    gpus = gpus_of([Group("a30-24gb", 2)])
    setting = scenario("small-0.9", gpus, span=20)
    assert setting.told is not None
    assert setting.forgetful is not None
    best = optimum(gpus, setting.told, setting.forgetful)
    assert best is not None
    found = {}
    for policy in ("worst-fit", "auto"):
        course = Course(ranking_for(policy, gpus, setting.told, rehearsed=500), warm_up=setting.warm_up)
        (outcome,) = run(setting.arrivals(1), dynamic(gpus), course)
        found[policy] = outcome.accepted_time / outcome.asked_time
    assert found["worst-fit"] < found["auto"] < best + 0.02
    assert found["auto"] == pytest.approx(best, abs=0.03)


def test_where_it_cannot_be_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    demand = Demand.of({name("1g.10gb"): 1, name("2g.20gb"): 1})
    assert optimum(gpus_of([Group("a100-80gb", 1), Group("h100-64gb", 1)]), demand, 1.0) is None
    monkeypatch.setattr(optima, "MAX_STATES", 10)
    assert optimum(gpus_of([Group("a100-80gb", 2)]), demand, 1.0) is None
