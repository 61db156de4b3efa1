"""People who wait: who is served first, who passes whom, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.policy import POLICIES
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import Request, SliceRequest, WholeRequest
from mig_spawner.planning.bench import Effort
from mig_spawner.planning.compare import compare
from mig_spawner.planning.fleet import Group, dynamic, gpus_of
from mig_spawner.planning.report import as_table
from mig_spawner.planning.rule import RULES, parse_quotas
from mig_spawner.planning.scenario import of_trace
from mig_spawner.planning.setup import Setup
from mig_spawner.planning.simulation import Course, Rule, run
from mig_spawner.planning.trace import Arrival, from_zero
from mig_spawner.planning.waiting import Queue

ONE, THREE, FOUR, SEVEN = (SliceRequest(ProfileName.parse(n)) for n in ("1g.10gb", "3g.40gb", "4g.40gb", "7g.80gb"))
BEST = POLICIES["best-fit"]
MINUTE = 60.0
HOUR = 3600.0


def fleet(count: int = 1) -> list[GPUState]:
    return dynamic(gpus_of([Group("a100-80gb", count)]))


def begun(rule: Callable[[], Rule], trace: list[Arrival], gpus: int = 1) -> dict[int, float]:
    """When each of those who were served began, by number."""
    found: dict[int, float] = {}
    served: list[int] = []
    (outcome,) = run(
        trace, fleet(gpus), Course(BEST, rule=rule, end=1e6),
        placed=lambda number, d: served.append(number) if d is not None else None,
    )  # fmt: skip
    for number, wait in zip(served, outcome.waits, strict=True):
        found[number] = trace[number].at + wait
    return found


def came(*rows: tuple[float, float, Request]) -> list[Arrival]:
    return [Arrival(at, duration, request) for at, duration, request in rows]


SMALL_PAST_LARGE = came((0, 100, FOUR), (1, 100, SEVEN), (2, 50, ONE), (3, 500, THREE))
"""A 4g runs; somebody wants the whole GPU; a short one and a long one come behind."""


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param("refuse", {0: 0, 2: 2}, id="nobody waits"),
        pytest.param("in-order", {0: 0, 1: 100, 2: 200, 3: 200}, id="strictly in order"),
        pytest.param("queue", {0: 0, 1: 100, 2: 200, 3: 200}, id="no end is agreed, so nobody passes"),
        pytest.param("queue-agreed", {0: 0, 1: 100, 2: 2, 3: 200}, id="the short one passes, the long one does not"),
    ],
)
def test_who_begins_when(rule: str, expected: dict[int, float]) -> None:
    assert begun(RULES[rule], SMALL_PAST_LARGE) == expected


def test_small_ones_pass_where_the_large_one_would_not_begin_first() -> None:
    """Two GPUs: a 4g and a 1g on one, a 7g on the other, which is the one where the next 7g is expected to begin first."""
    trace = came((0, 500, FOUR), (1, 600, ONE), (2, 100, SEVEN), (3, 50, SEVEN), (4, 400, ONE))
    assert begun(RULES["in-order"], trace, 2) == {0: 0, 1: 1, 2: 2, 3: 102, 4: 102}
    assert begun(RULES["queue"], trace, 2) == {0: 0, 1: 1, 2: 2, 3: 102, 4: 4}


def test_who_starves_has_a_gpu_earmarked() -> None:
    """A large one has to wait for three hours, so who is short passes it, until it has waited too long."""
    long = [Arrival(0, 3 * HOUR, FOUR), Arrival(0, 3 * HOUR, FOUR)]
    large = [Arrival(MINUTE, HOUR, WholeRequest())]
    small = [Arrival(2 * MINUTE + n * 10 * MINUTE, 9 * MINUTE, THREE) for n in range(12)]
    trace = [*long, *large, *small]

    def passing(after: timedelta) -> int:
        found = begun(lambda: Queue(agreed=True, starvation_after=after), trace)
        return sum(found[n] == trace[n].at for n in range(len(trace)) if n > 2)

    never, soon = passing(timedelta(days=9)), passing(timedelta(minutes=30))
    assert never > soon > 0
    (outcome,) = run(trace, fleet(), Course(BEST, rule=RULES["queue-agreed"], end=1e6))
    assert outcome.starved >= 1
    assert outcome.longest > 1800


def test_who_does_not_want_to_wait_any_longer_gives_up() -> None:
    trace = [Arrival(0, 100, SEVEN), Arrival(1, 10, SEVEN, wait=20), Arrival(2, 10, ONE)]
    (outcome,) = run(trace, fleet(), Course(BEST, rule=RULES["queue"], end=300))
    assert outcome.refused_why == {"gave up": 1}
    assert (outcome.waits, outcome.longest) == ([0, 98], 98)


def test_who_is_over_quota_is_passed_over_until_others_of_the_group_leave() -> None:
    trace = [Arrival(n, 10, ONE, group=group) for n, group in enumerate(["a", "a", "a", "b"])]
    for rule in ("in-order", "queue", "queue-agreed"):
        (outcome,) = run(trace, fleet(), Course(BEST, rule=RULES[rule], quotas=parse_quotas(["a=0.3"]), end=100))
        assert outcome.waits == [0, 0, 0, 8], rule
        assert not outcome.refused_why


REQUESTS = st.sampled_from([ONE, THREE, FOUR, SEVEN, WholeRequest()])
TRACES = st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([20, 300, 4000]), REQUESTS), min_size=1, max_size=30)


@settings(max_examples=40, deadline=None)
@given(rows=TRACES, rule=st.sampled_from(["in-order", "queue", "queue-agreed"]))
def test_everybody_is_served_in_the_end_and_nothing_overlaps(rows: list[tuple[int, int, Request]], rule: str) -> None:
    trace = from_zero(came(*rows))
    found: dict[int, Decision | None] = {}
    order: list[int] = []

    def placed(number: int, decision: Decision | None) -> None:
        found[number] = decision
        order.append(number)

    (outcome,) = run(trace, fleet(2), Course(BEST, rule=RULES[rule], end=1e6), placed=placed)
    assert outcome.accepted == len(trace) == len(outcome.waits)
    held = []
    for number, wait in zip(order, outcome.waits, strict=True):
        decision, begin = found[number], trace[number].at + wait
        assert decision is not None
        held.append((begin, begin + trace[number].duration, decision.placement))
    for (a, b, place), (c, d, other) in combinations(held, 2):
        assert not (a < d and c < b and place.overlaps(other))
    if rule == "in-order":
        assert order == sorted(order)


def test_rules_side_by_side() -> None:
    trace = came(*((n * 120.0, 2000.0 if n % 4 else 500.0, (SEVEN, ONE, ONE, THREE)[n % 4]) for n in range(60)))
    gpus = gpus_of([Group("a100-80gb", 2)])
    setups = [Setup("best-fit", rule=rule) for rule in RULES]
    told = compare([of_trace("t", gpus, trace)], setups, Effort(seeds=1, rehearsed=100, bound=False))
    waits = {row.setup.rule: row.figures["wait_p90_s"].mean for row in told.rows}
    assert waits["refuse"] == 0
    assert waits["queue-agreed"] > 0
    assert told.rows[0].figures["wait_longest_s"].mean == 0
    assert told.rows[1].figures["starved_requests"].mean > 0
    assert "queue-agreed" in as_table(told)
    assert "longest min" in as_table(told)
