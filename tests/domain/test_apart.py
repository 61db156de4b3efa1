"""Groups that never share a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.lease import Holder, Queued
from mig_spawner.domain.policy import POLICIES, Apart
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.queue import Board, Line, Outlook, Start, Stay
from mig_spawner.domain.request import Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.fleet import Group, fleet_of, gpus_of
from mig_spawner.planning.rule import RULES
from mig_spawner.planning.simulation import Course, run
from mig_spawner.planning.trace import Arrival

MakeState = Callable[..., GPUState]

RULE = Apart(frozenset({"physics", "medicine"}))
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("mine", "theirs", "because"),
    [
        pytest.param({"physics"}, {"medicine"}, "medicine", id="one of each"),
        pytest.param({"physics"}, {"physics", "staff"}, None, id="the same group"),
        pytest.param({"physics"}, {"staff"}, None, id="somebody of no such group"),
        pytest.param({"staff"}, {"medicine"}, None, id="I am of no such group"),
        pytest.param({"physics", "medicine"}, {"physics"}, "medicine", id="I am in both"),
        pytest.param({"physics", "medicine"}, {"physics", "medicine"}, None, id="both in both"),
        pytest.param(set(), {"physics"}, None, id="no groups at all"),
    ],
)
def test_who_may_share(mine: set[str], theirs: set[str], because: str | None) -> None:
    assert RULE.forbids(mine, theirs) == because
    assert (RULE.forbids(theirs, mine) is None) == (because is None)


def test_a_rule_of_one_group_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least two"):
        Apart(frozenset({"physics"}))


def outlook(state: GPUState, *groups: str, until: datetime | None = None) -> Outlook:
    """A GPU with a 2g on it of somebody with these groups, if any."""
    stays = (Stay(0b110000, until=until, groups=frozenset(groups)),) if groups else ()
    return Outlook(state, NOW, stays)


def waiting(request: Request, *groups: str) -> Queued:
    return Queued(lease_id="l1", holder=Holder("u"), request=request, queued_at=NOW, groups=frozenset(groups))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("request_", [SliceRequest(ProfileName(1, 10)), WholeRequest()], ids=str)
def test_no_policy_places_somebody_beside_whom_he_must_not_meet(
    make_state: MakeState, policy: str, request_: Request
) -> None:
    fleet = [
        outlook(make_state(taken=[("2g.20gb", 4)]), "medicine"),
        outlook(make_state(number=1)),
        outlook(make_state(number=2, unavailable="cordoned")),
    ]
    board = Board(fleet, POLICIES[policy].ranking(), NOW, apart=(RULE,))
    turn = Line(board).turn(waiting(request_, "physics"))
    assert turn is not None
    assert turn.decision.node == "node-1"
    assert board.outlook(turn.decision.gpu.gpu_uuid).stays[0].groups == {"physics"}  # type: ignore[union-attr]
    assert board.forbidden(frozenset({"medicine"})) == [turn.decision.gpu.gpu_uuid]
    assert board.forbidden(frozenset({"staff"})) == []


def test_who_is_kept_apart_waits_for_the_end_of_the_others(make_state: MakeState) -> None:
    later = NOW + timedelta(hours=1)
    shut = outlook(make_state(taken=[("2g.20gb", 4)]), "medicine", until=later)
    small = SliceRequest(ProfileName(1, 10))
    for groups, start in (("physics", Start(0, later)), ("staff", Start(0, NOW)), ("medicine", Start(0, NOW))):
        found = shut.seen_by((RULE,), frozenset({groups})).earliest((small,))
        assert found is not None
        assert found[0] == start


def test_nobody_passes_who_would_shut_the_gpu_for_one_ahead(make_state: MakeState) -> None:
    """The one ahead waits for a 4g, which ends first; a 1g of the other group beside it would shut that GPU for him."""
    state = make_state(taken=[("4g.40gb", 0)])
    running = Stay(0b1111, state.layout.engines, until=NOW + timedelta(hours=1))
    board = Board([Outlook(state, NOW, (running,))], POLICIES["first-fit"].ranking(), NOW, apart=(RULE,))
    line = Line(board)
    ahead = waiting(SliceRequest(ProfileName(4, 40)), "physics")
    assert line.turn(ahead) is None
    small = SliceRequest(ProfileName(1, 10))
    assert line.turn(replace(waiting(small, "medicine"), lease_id="l2")) is None
    assert line.held_back["l2"] == ahead
    assert line.turn(replace(waiting(small, "staff"), lease_id="l3")) is not None


def test_the_simulator_keeps_them_apart_under_every_rule() -> None:
    fleet = fleet_of(gpus_of([Group.parse("a100-80gb:1")]), "dynamic")
    small = SliceRequest(ProfileName(1, 10))
    trace = [Arrival(0, 100, small, "medicine"), Arrival(1, 100, small, "physics"), Arrival(2, 10, small, "staff")]
    for rule, served in (
        ("refuse", {0, 2}),
        ("in-order", {0, 1, 2}),
        ("queue", {0, 1, 2}),
        ("queue-agreed", {0, 1, 2}),
    ):
        placed: set[int] = set()
        course = Course(POLICIES["best-fit"].ranking(), rule=RULES[rule], apart=(RULE,), end=300)
        (outcome,) = run(trace, fleet, course, placed=partial(_note, placed))
        assert placed == served, rule
        assert rule == "refuse" or max(outcome.waits) >= 99


def _note(placed: set[int], number: int, decision: Decision | None) -> None:
    if decision is not None:
        placed.add(number)
