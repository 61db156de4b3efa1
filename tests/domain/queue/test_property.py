"""What holds of the line whatever is on the GPUs and whoever waits."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mig_spawner.domain.gpu import Layout
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.policy import POLICIES
from mig_spawner.domain.queue import Board, Guards, Line, Outlook, Start, Stay, Turn, earmark_for
from tests.domain.queue.scene import NOW, gpu, minutes, waits

ENDS = st.sampled_from([None, 5, 20, 60, 600])
KINDS = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "whole", "30 GB", "1g.10gb+me"]
POLICY_NAMES = ["best-fit", "first-fit", "worst-fit", "min-fragmentation"]
CHOICES = st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)


@st.composite
def fleets(draw: st.DrawFn) -> list[Outlook]:
    """Up to four GPUs with legal instances on them, some with an agreed end."""
    fleet = []
    for number in range(draw(st.integers(1, 4))):
        outlook = gpu(number, model=draw(st.sampled_from(["a100-80gb", "a100-80gb", "h100-80gb", "a30"])))
        for _ in range(draw(st.integers(0, 7))):
            profile = draw(st.sampled_from(outlook.state.gpu.profiles))
            starts = outlook.state.layout.starts(profile)
            if starts:
                ends = draw(ENDS)
                found = Board([outlook], POLICIES["best-fit"], NOW).choose(waits("x", str(profile.name)).request)
                assert found is not None
                outlook = outlook.granting(found, None if ends is None else NOW + minutes(ends))
        fleet.append(outlook)
    return fleet


QUEUES = st.lists(st.tuples(CHOICES, ENDS), min_size=1, max_size=25).map(
    lambda kinds: [waits(f"w{n}", *choices, duration=ends) for n, (choices, ends) in enumerate(kinds)]
)


def first_start(lease: Queued, board: Board) -> Start | None:
    """When somebody could begin first, by looking at every GPU."""
    found = [outlook.earliest(lease.choices) for outlook in board.outlooks()]
    return min((start for start, _ in filter(None, found)), default=None)


def check_overtaking(passing: Line, queue: list[Queued]) -> list[Turn]:
    """Go along the queue as `serve` does, and look after each grant whether it has done harm to who was passed."""
    turns: list[Turn] = []
    passed: list[Queued] = []
    for lease in queue:
        before = None if not passed else first_start(passed[0], passing.board)
        turn = passing.turn(lease)
        if turn is None:
            passed.append(lease)
            continue
        turns.append(turn)
        if passed:
            after = first_start(passed[0], passing.board)
            assert before == after, f"{lease.lease_id} makes {passed[0].lease_id} start later"
        same = [other for other in passed if (other.choices, other.duration_s) == (lease.choices, lease.duration_s)]
        assert not same, f"{lease.lease_id} overtakes {same[0].lease_id}, who asks for the same"
    for guard in passing.guards.near:
        if guard.kept is not None:
            start, spot = guard.kept
            outlook = passing.board.outlook(spot.placement.gpu_uuid)
            assert outlook is not None
            ahead = [
                g.stay for g in passing.guards.near[: passing.guards.near.index(guard)] if g.gpu_uuid == guard.gpu_uuid
            ]
            now = outlook.keeping(*filter(None, ahead)).start_at(spot)
            assert now is not None
            assert now <= start, "what is kept for somebody was given away"
    return turns


@settings(max_examples=250, deadline=None)
@given(
    fleet=fleets(),
    queue=QUEUES,
    policy=st.sampled_from(["best-fit", "first-fit", "worst-fit", "min-fragmentation"]),
    known=st.sampled_from([1, 2, 32]),
)
def test_nobody_is_overtaken_to_his_harm(fleet: list[Outlook], queue: list[Queued], policy: str, known: int) -> None:
    """Nor where a pass knows of fewer good GPUs than there are, as on a large fleet."""
    with patch("mig_spawner.domain.queue.board.BEST", known):
        check_a_pass(fleet, queue, policy)


def check_a_pass(fleet: list[Outlook], queue: list[Queued], policy: str) -> None:
    board = Board(fleet, POLICIES[policy], NOW)
    before = {outlook.state.gpu.gpu_uuid: outlook.state.layout for outlook in fleet}
    turns = check_overtaking(Line(board), queue)
    for turn in turns:
        layout = before[turn.decision.gpu.gpu_uuid]
        assert not layout.mask & turn.decision.placement.mask, "a slice is granted twice"
        before[turn.decision.gpu.gpu_uuid] = layout.with_taken(turn.decision.placement)


@settings(max_examples=100, deadline=None)
@given(fleet=fleets(), queue=QUEUES)
def test_the_first_in_line_is_served_whenever_there_is_room(fleet: list[Outlook], queue: list[Queued]) -> None:
    ranking = POLICIES["best-fit"]
    could = [number for number, request in enumerate(queue[0].choices) if Board(fleet, ranking, NOW).choose(request)]
    turns = list(Line(Board(fleet, ranking, NOW)).serve(queue))
    assert bool(could) == (bool(turns) and turns[0].lease is queue[0])
    if could:
        assert turns[0].choice == could[0], "the first choice that can be had"


@settings(max_examples=100, deadline=None)
@given(fleet=fleets(), queue=QUEUES)
def test_nothing_changes_when_the_queue_is_asked_again(fleet: list[Outlook], queue: list[Queued]) -> None:
    """What one pass leaves, the next one leaves as well: nobody gains by asking often."""
    ranking = POLICIES["best-fit"]
    first = Line(Board(fleet, ranking, NOW))
    served = {turn.lease.lease_id for turn in first.serve(queue)}
    left = [lease for lease in queue if lease.lease_id not in served]
    again = list(Line(Board(first.board.outlooks(), ranking, NOW)).serve(left))
    head = left[:1]
    assert all(turn.lease not in head for turn in again)


@settings(max_examples=60, deadline=None)
@given(
    fleet=fleets(),
    wanted=CHOICES,
    crowd=st.lists(st.lists(st.tuples(CHOICES, ENDS), max_size=4), min_size=12, max_size=30),
)
def test_an_earmark_ends_starvation(
    fleet: list[Outlook], wanted: list[str], crowd: list[list[tuple[list[str], float | None]]]
) -> None:
    """However many come at a greater priority: once a GPU is earmarked, its head begins when what was there has ended."""
    ranking = POLICIES["best-fit"]
    head = waits("head", *wanted)
    gpu_uuid = earmark_for(head, fleet, ())
    assume(gpu_uuid is not None)
    assert gpu_uuid is not None
    head = replace(head, earmark=gpu_uuid)
    for step, arrivals in enumerate(crowd):
        board = Board(fleet, ranking, NOW, earmarks={gpu_uuid: "head"})
        before = board.outlook(gpu_uuid)
        others = [waits(f"o{step}-{n}", *kinds, duration=ends, priority=9) for n, (kinds, ends) in enumerate(arrivals)]
        turns = list(Line(board).serve([*others, head]))
        if any(turn.lease is head for turn in turns):
            return
        assert board.outlook(gpu_uuid) == before, "something new was placed on the earmarked GPU"
        fleet = [
            _one_ends(outlook, step) if outlook.state.gpu.gpu_uuid == gpu_uuid else outlook
            for outlook in board.outlooks()
        ]
    raise AssertionError("each step ended one stay on the GPU, which has eight memory slices, and the head still waits")


def _one_ends(outlook: Outlook, step: int) -> Outlook:
    """The same GPU when one of those on it has ended."""
    if not outlook.stays:
        return outlook
    gone = step % len(outlook.stays)
    left = tuple(stay for number, stay in enumerate(outlook.stays) if number != gone)
    layout = Layout(outlook.state.gpu)
    for stay in left:
        layout = Layout(layout.gpu, layout.mask | stay.mask, layout.engines + stay.engines)
    return replace(outlook, state=replace(outlook.state, layout=layout), stays=left)


@settings(max_examples=150, deadline=None)
@given(fleet=fleets(), queue=QUEUES)
def test_each_who_waits_is_kept_what_looking_at_every_gpu_finds(fleet: list[Outlook], queue: list[Queued]) -> None:
    board = Board(fleet, POLICIES["best-fit"], NOW)
    guards = Guards(board, minutes(1), lookahead=8)
    kept: dict[str, list[Stay]] = {outlook.state.gpu.gpu_uuid: [] for outlook in fleet}
    for lease in queue[:8]:
        everywhere = (outlook.keeping(*kept[outlook.state.gpu.gpu_uuid]).earliest(lease.choices) for outlook in fleet)
        best = min((start for start, _ in filter(None, everywhere)), default=None)
        guard = guards.add(lease)
        assert (None if guard.kept is None else guard.kept[0]) == best
        if guard.stay is not None and guard.gpu_uuid is not None:
            kept[guard.gpu_uuid].append(guard.stay)
