"""Time passing on a fleet: who is served, refused, or waits, and what stands idle meanwhile."""

from __future__ import annotations

from itertools import combinations
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.policy import POLICIES
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.fleet import Group, dynamic, fleet_of, gpus_of, named_cut, static
from mig_spawner.planning.rule import parse_quotas
from mig_spawner.planning.simulation import Course, Outcome, run
from mig_spawner.planning.trace import Arrival, from_zero
from mig_spawner.wire.menu.file import read_menu

ONE, THREE, FOUR, SEVEN = (SliceRequest(ProfileName.parse(n)) for n in ("1g.10gb", "3g.40gb", "4g.40gb", "7g.80gb"))
BEST = POLICIES["best-fit"]


def fleet(text: str = "a100-80gb:1", layout: str = "dynamic") -> list[GPUState]:
    return fleet_of(gpus_of([Group.parse(part) for part in text.split()]), layout)


def arrivals(*rows: tuple[float, float, Request]) -> list[Arrival]:
    return [Arrival(at, duration, request) for at, duration, request in rows]


def served(trace: list[Arrival], states: list[GPUState], course: Course | None = None) -> list[int]:
    """The numbers of those who were served, in turn."""
    found: list[int] = []
    run(
        trace,
        states,
        course or Course(BEST),
        placed=lambda number, d: found.append(number) if d is not None else None,
    )
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([(0, 10, SEVEN), (5, 1, ONE)], [0], id="full"),
        pytest.param([(0, 10, SEVEN), (10, 1, ONE)], [0, 1], id="free at the very moment it ends"),
        pytest.param([(0, 10, ONE), (1, 10, FOUR), (2, 1, SEVEN)], [0, 1], id="beside each other"),
        pytest.param([(0, 10, WholeRequest()), (1, 1, ONE)], [0], id="whole"),
        pytest.param([(0, 10, ONE), (1, 1, WholeRequest())], [0], id="not whole any more"),
        pytest.param([(0, 10, MemoryRequest(41)), (1, 1, FOUR)], [0], id="41 GB is a 7g"),
        pytest.param([(0, inf, THREE), (1e9, 1, FOUR)], [0, 1], id="for ever, in the better half"),
    ],
)
def test_who_is_served(rows: list[tuple[float, float, Request]], expected: list[int]) -> None:
    assert served(arrivals(*rows), fleet()) == expected


def test_partitions_are_taken_and_given_back_and_nothing_else_is_cut() -> None:
    trace = arrivals((0, 10, THREE), (1, 10, THREE), (2, 10, ONE), (3, 10, ONE), (4, 10, ONE), (12, 1, THREE))
    assert served(trace, fleet(layout="all-balanced")) == [0, 2, 3, 5]


def one(outcomes: list[Outcome]) -> Outcome:
    (outcome,) = outcomes
    return outcome


def test_what_is_measured() -> None:
    trace = arrivals((0, 10, SEVEN), (4, 6, ONE), (10, 10, FOUR), (20, 5, ONE))
    outcome = one(run(trace, fleet(), Course(BEST, end=30)))
    assert (outcome.asked, outcome.accepted) == (4, 3)
    assert outcome.asked_time == pytest.approx(10 + 6 / 8 + 10 / 2 + 5 / 8)
    assert outcome.accepted_time == pytest.approx(10 + 10 / 2 + 5 / 8)
    assert outcome.asked_size == pytest.approx(1 + 1 / 8 + 1 / 2 + 1 / 8)
    assert outcome.accepted_size == pytest.approx(1 + 1 / 2 + 1 / 8)
    assert outcome.waits == [0, 0, 0]
    assert outcome.refused_by_profile == {"1g.10gb": 1}
    assert outcome.refused_why == {"full": 1}
    assert outcome.active_time == pytest.approx(25)
    assert outcome.taken_time == pytest.approx(10 + 5 + 5 / 8)
    assert outcome.span == 30
    assert outcome.wasted_gpu_hours * 3600 == pytest.approx(25 - 10 - 5 - 5 / 8)


def test_the_warm_up_does_not_count_but_happens() -> None:
    trace = arrivals((0, 10, SEVEN), (4, 6, ONE), (10, 10, FOUR))
    outcome = one(run(trace, fleet(), Course(BEST, warm_up=4, end=12)))
    assert (outcome.asked, outcome.accepted, outcome.span) == (2, 1, 8)
    assert outcome.active_time == pytest.approx(8)


def test_parts_add_up_to_the_whole() -> None:
    trace = arrivals(*((n, 2.5, ONE if n % 3 else FOUR) for n in range(40)))
    whole = one(run(trace, fleet(), Course(BEST, warm_up=3)))
    parts = run(trace, fleet(), Course(BEST, warm_up=3, parts=5))
    assert len(parts) == 5
    for name in ("asked", "accepted", "span", "active_time", "taken_time", "stranded_time", "asked_time", "asked_size"):
        assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(whole, name)), name
    assert {round(part.span, 6) for part in parts} == {round(36 / 5, 6)}


def test_an_empty_trace_says_nothing() -> None:
    outcome = one(run([], fleet(), Course(BEST)))
    assert (outcome.asked, outcome.span) == (0, 0)


def test_a_group_has_no_more_than_its_quota_at_once() -> None:
    trace = [Arrival(n, 10, ONE, group=group) for n, group in enumerate(["a", "a", "a", "b", "b", "b"])]
    trace.append(Arrival(10.5, 1, ONE, group="a"))
    course = Course(BEST, quotas=parse_quotas(["a=0.3"]))
    outcome = one(run(trace, fleet(), course))
    assert outcome.refused_why == {"quota": 1}
    assert outcome.refused_by_group == {"a": 1}
    assert served(trace, fleet(), course) == [0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("text", ["physics", "=3", "physics=-1", "physics=inf", "physics=many"])
def test_a_quota_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="GROUP=GPUS"):
        parse_quotas([text])


def test_quotas_are_read() -> None:
    assert parse_quotas([]) == ()
    assert [(*rule.groups, rule.limit) for rule in parse_quotas(["a=b=2", "c=0.5"])] == [("a=b", 2), ("c", 0.5)]


REQUESTS = st.sampled_from([ONE, THREE, FOUR, SEVEN, WholeRequest(), MemoryRequest(15)])
TRACES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), REQUESTS), min_size=1, max_size=40)


@settings(max_examples=80, deadline=None)
@given(
    rows=TRACES,
    policy=st.sampled_from(sorted(POLICIES)),
    layout=st.sampled_from(["dynamic", "all-1g", "all-balanced"]),
    gpus=st.sampled_from(["a100-80gb:2", "a100-80gb:1 a30-24gb:2", "rtx-pro-6000:1 h100-80gb:1"]),
)
def test_nothing_overlaps_and_nobody_is_refused_for_nothing(
    rows: list[tuple[int, int, Request]], policy: str, layout: str, gpus: str
) -> None:
    trace = from_zero(arrivals(*rows))
    states = fleet(gpus, layout)
    found: dict[int, Decision | None] = {}
    run(trace, states, Course(POLICIES[policy]), placed=found.__setitem__)
    assert set(found) == set(range(len(trace)))
    held = [(trace[n].at, trace[n].at + trace[n].duration, d.placement) for n, d in found.items() if d is not None]
    for (a, b, place), (c, d, other) in combinations(held, 2):
        assert not (a < d and c < b and place.overlaps(other))
    for number, decision in found.items():
        if decision is None:
            at = trace[number].at
            on = {place.gpu_uuid for a, b, place in held if a <= at < b}
            free = [state for state in states if state.gpu.gpu_uuid not in on]
            assert POLICIES[policy] is not None
            assert all(_never(state, trace[number].request) for state in free)


def _never(state: GPUState, request: Request) -> bool:
    """Whether an empty GPU cannot serve a request at all."""
    match request:
        case SliceRequest(profile):
            return state.free(profile) == 0
        case MemoryRequest(memory):
            names = {p.name for p in state.gpu.profiles if p.name.memory_gb >= memory}
            return all(state.free(name) == 0 for name in names)
        case _:
            return not state.whole_free


@pytest.mark.parametrize(
    ("model", "name", "cut"),
    [
        ("a100-80gb", "all-1g", ["1g.10gb"] * 7),
        ("a100-80gb", "all-balanced", ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]),
        ("a30-24gb", "all-balanced", ["1g.6gb", "1g.6gb", "2g.12gb"]),
        ("rtx-pro-6000", "all-1g", ["1g.24gb"] * 4),
    ],
)
def test_layouts_by_name(model: str, name: str, cut: list[str]) -> None:
    (gpu,) = gpus_of([Group(model, 1)])
    assert [str(n) for n in named_cut(gpu, name)] == cut
    (state,) = static([gpu], [named_cut(gpu, name)])
    assert (state.dynamic, len(state.devices), state.layout.taken) == (False, len(cut), state.layout.mask.bit_count())


def test_a_layout_that_is_none_is_refused_and_an_empty_one_leaves_the_gpu_whole() -> None:
    (gpu,) = gpus_of([Group("a100-80gb", 1)])
    with pytest.raises(InvalidRequest, match="is no layout"):
        named_cut(gpu, "all-4g")
    (state,) = static([gpu], [()])
    assert state.whole_free
    assert dynamic([gpu])[0].free(ProfileName(1, 10)) == 7


@pytest.mark.parametrize("text", ["a100-80gb:0", "a100-80gb:", "a100-80gb:x", "a100-80gb:99999999", "gtx:1"])
def test_gpus_that_are_none_are_refused(text: str) -> None:
    if text == "a100-80gb:":
        assert Group.parse(text).count == 1
        return
    with pytest.raises(InvalidRequest, match=r"MODEL:COUNT|no GPU model"):
        Group.parse(text)


def test_too_many_gpus_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="At most"):
        gpus_of([Group("a100-80gb", 15_000), Group("a30-24gb", 15_000)])


def test_the_quotas_of_a_menu_hold_as_in_the_allocator(tmp_path: Path) -> None:
    """Each person one slice at once, and three GPU-hours of the last day for each group."""
    path = tmp_path / "menu.yaml"
    path.write_text("quotas:\n- {per: person, slices: 1}\n- {per: group, gpu_hours: 3, window: 1d}\n")
    quotas = read_menu(str(path)).quotas
    hour = 3600.0
    trace = [
        Arrival(0, 2 * hour, ONE, group="a", holder="alice"),
        Arrival(1, hour, ONE, group="a", holder="alice"),
        Arrival(2, 4 * hour, SEVEN, group="b", holder="bob"),
        Arrival(5 * hour, hour, ONE, group="b", holder="carol"),
        Arrival(5 * hour + 1, hour, ONE, group="a", holder="alice"),
        Arrival(29 * hour, hour, ONE, group="b", holder="bob"),
    ]
    placed: dict[int, bool] = {}

    def note(number: int, decision: Decision | None) -> None:
        placed[number] = decision is not None

    outcome = one(run(trace, fleet("a100-80gb:2"), Course(BEST, quotas=quotas), placed=note))
    assert placed == {0: True, 1: False, 2: True, 3: False, 4: True, 5: True}
    assert outcome.refused_why == {"quota": 2}
