"""Who is next, and who may pass whom."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from mig_spawner.domain.fleet import Device
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.policy import Index, best_fit
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.queue import Board, Line, Memory, Outlook, earmark_for
from mig_spawner.domain.queue.board import BEST, LOOKED_FOR
from mig_spawner.domain.queue.guard import LOOKAHEAD
from tests.domain.queue.scene import NOW, gpu, line, minutes, request, told, waits

BIG = "7g.80gb"


@pytest.mark.parametrize(
    ("gpus", "queue", "served"),
    [
        pytest.param(
            [gpu(0)],
            [waits("a", "3g.40gb"), waits("b", "3g.40gb"), waits("c", "3g.40gb")],
            [("a", "3g.40gb", "GPU-0"), ("b", "3g.40gb", "GPU-0")],
            id="in order",
        ),
        pytest.param(
            [gpu(0, ("4g.40gb", 0, None))],
            [waits("a", BIG, "3g.40gb", "1g.10gb")],
            [("a", "3g.40gb", "GPU-0")],
            id="the first alternative that can be had",
        ),
        pytest.param([gpu(0)], [waits("a", "12 GB")], [("a", "1g.20gb", "GPU-0")], id="memory"),
        pytest.param(
            [gpu(0, ("1g.10gb", 6, None))],
            [waits("large", BIG), waits("small", "1g.10gb")],
            [],
            id="who would sit where a large one is expected waits",
        ),
        pytest.param(
            [gpu(0, ("1g.10gb", 6, 60))],
            [waits("large", BIG), waits("small", "1g.10gb", duration=30)],
            [("small", "1g.10gb", "GPU-0")],
            id="who is gone before the large one begins may pass",
        ),
        pytest.param(
            [gpu(0, ("1g.10gb", 6, 60))],
            [waits("large", BIG), waits("small", "1g.10gb", duration=61)],
            [],
            id="who is not gone by then may not",
        ),
        pytest.param(
            [gpu(0, ("1g.10gb", 6, None)), gpu(1, ("3g.40gb", 4, None), ("1g.10gb", 3, None))],
            [waits("large", BIG), waits("small", "1g.10gb")],
            [("small", "1g.10gb", "GPU-1")],
            id="a small one goes where the large one is not expected",
        ),
        pytest.param(
            [gpu(0, *[("1g.10gb", start, 5) for start in range(7)]), gpu(1, ("1g.10gb", 6, 600))],
            [waits("large", BIG), waits("small", "1g.10gb")],
            [("small", "1g.10gb", "GPU-1")],
            id="the large one is expected on a full GPU that ends soon",
        ),
        pytest.param(
            [gpu(0, ("1g.10gb", 6, None)), gpu(1, ("1g.10gb", 6, None))],
            [waits("large", BIG), waits("second", BIG), waits("small", "1g.10gb")],
            [],
            id="the second large one is kept a place as well",
        ),
        pytest.param(
            [gpu(0, ("3g.40gb", 4, None))],
            [waits("a", "4g.40gb", "3g.40gb"), waits("b", "1g.10gb")],
            [("a", "4g.40gb", "GPU-0")],
            id="who is served keeps nothing",
        ),
        pytest.param(
            [gpu(0, ("3g.40gb", 0, None), ("1g.10gb", 4, 10))],
            [waits("a", "3g.40gb"), waits("b", "1g.10gb")],
            [],
            id="the place that is kept need not be the free one",
        ),
        pytest.param(
            [gpu(0, ("4g.40gb", 0, 10), ("1g.10gb", 4, None))],
            [waits("a", "4g.40gb"), waits("b", "1g.10gb")],
            [("b", "1g.10gb", "GPU-0")],
            id="beside the place that is kept there is room",
        ),
        pytest.param(
            [gpu(0), gpu(1, model="a30")],
            [waits("a", "1g.10gb", avoid=frozenset({"GPU-0"})), waits("b", "1g.10gb")],
            [("b", "1g.10gb", "GPU-0")],
            id="what somebody avoids is not kept for him",
        ),
        pytest.param(
            [gpu(0, ("1g.10gb+me", 6, None))],
            [waits("a", "1g.10gb+me"), waits("b", "1g.10gb")],
            [("b", "1g.10gb", "GPU-0")],
            id="an engine is waited for, not a slice",
        ),
        pytest.param(
            [gpu(0, unavailable="silent"), gpu(1)],
            [waits("a", BIG), waits("b", "1g.10gb")],
            [("a", BIG, "GPU-1")],
            id="nothing is granted on a GPU that is silent",
        ),
    ],
)
def test_the_line(gpus: list[Outlook], queue: list[Queued], served: list[tuple[str, str, str]]) -> None:
    assert told(list(line(*gpus).serve(queue))) == served


def test_a_device_that_stands_is_kept_for_who_waits_for_it() -> None:
    outlook = gpu(0, dynamic=False)
    profile = outlook.state.gpu.profile(ProfileName.parse("1g.10gb"))
    assert profile is not None
    devices = tuple(
        Device(Placement("GPU-0", start, 1), profile, f"MIG-{start}", idle=start == 1) for start in range(2)
    )
    static = Outlook(gpu(0, dynamic=False, devices=devices).state.without(0, profile.engines), NOW)
    assert told(list(line(static).serve([waits("a", "1g.10gb"), waits("b", "1g.10gb")]))) == [("a", "1g.10gb", "GPU-0")]


def test_who_is_held_back_is_told_by_whom() -> None:
    passing = line(gpu(0, ("1g.10gb", 6, None)))
    large, small, other = waits("large", BIG), waits("small", "1g.10gb"), waits("other", "1g.10gb")
    assert list(passing.serve([large, small, other])) == []
    assert {name: ahead.lease_id for name, ahead in passing.held_back.items()} == {"small": "large", "other": "large"}


def test_an_earmarked_gpu_serves_its_head_and_nobody_else() -> None:
    large = waits("large", BIG, earmark="GPU-1")
    gpus = [gpu(0, ("4g.40gb", 0, None)), gpu(1)]
    ahead, behind = waits("high", BIG, priority=5), waits("small", "1g.10gb")
    assert told(list(line(*gpus, earmarks={"GPU-1": "large"}).serve([ahead, large, behind]))) == [
        ("large", BIG, "GPU-1"),
    ]


def test_nothing_is_placed_on_an_earmarked_gpu_even_if_it_is_gone_in_time() -> None:
    gpus = [gpu(0, ("1g.10gb", 6, 60))]
    queue = [waits("large", BIG, earmark="GPU-0"), waits("small", "1g.10gb", duration=1)]
    assert list(line(*gpus, earmarks={"GPU-0": "large"}).serve(queue)) == []


@pytest.mark.parametrize(
    ("gpus", "taken", "chosen"),
    [
        pytest.param([gpu(0, ("1g.10gb", 0, None)), gpu(1, ("7g.80gb", 0, 90))], [], "GPU-1", id="a known end"),
        pytest.param([gpu(0, ("1g.10gb", 0, 10)), gpu(1, ("1g.10gb", 0, 9))], [], "GPU-1", id="the sooner end"),
        pytest.param([gpu(0, ("1g.10gb", 0, 10)), gpu(1, ("1g.10gb", 0, 9))], ["GPU-1"], "GPU-0", id="not a taken one"),
        pytest.param(
            [gpu(0, ("1g.10gb", 0, None), ("1g.10gb", 1, None)), gpu(1, ("3g.40gb", 0, None))],
            [],
            "GPU-1",
            id="fewer of whom nobody knows",
        ),
        pytest.param([gpu(0, unavailable="silent")], [], None, id="none that is silent"),
        pytest.param([gpu(0, model="a30")], [], None, id="none that could never serve it"),
    ],
)
def test_which_gpu_is_earmarked(gpus: list[Outlook], taken: list[str], chosen: str | None) -> None:
    assert earmark_for(waits("a", BIG), gpus, taken) == chosen


def test_who_is_kept_a_better_place_sends_those_behind_to_another() -> None:
    memory = Memory()
    first, second = waits("first", BIG), waits("second", "4g.40gb")
    memory.remember(first.choices, NOW, ("GPU-0",))
    memory.remember(second.choices, NOW, ("GPU-0", "GPU-1"))
    gpus = [gpu(0, ("1g.10gb", 0, 100), ("3g.40gb", 4, None)), gpu(1, ("1g.10gb", 0, 10))]
    with patch("mig_spawner.domain.queue.board.BEST", 1):
        passing = line(*gpus, memory=memory)
        # Both GPUs have room for the small one, but the first is better off on GPU-1, and then the second on GPU-0.
        assert list(passing.serve([first, second, waits("small", "1g.10gb")])) == []
    assert [guard.gpu_uuid for guard in passing.guards.near[:2]] == ["GPU-1", "GPU-0"]


def test_far_behind_everything_is_kept_that_could_serve_who_waits() -> None:
    gpus = [gpu(n, ("1g.10gb", 6, None)) for n in range(LOOKAHEAD + 5)]
    large = [waits(f"large-{n}", BIG) for n in range(LOOKAHEAD + 1)]
    passing = line(*gpus, gpu(99, model="a30"))
    assert told(list(passing.serve([*large, waits("small", "1g.10gb"), waits("other", "1g.6gb")]))) == [
        ("other", "1g.6gb", "GPU-99")
    ]


def _looks(fleet: int, queue: int, memory: Memory) -> tuple[int, int]:
    """How many GPUs one pass looks into, and how often it asks for a place."""
    gpus = [gpu(n, ("1g.10gb", 6, None)) for n in range(fleet)]
    lease = [waits("large", BIG), *(waits(f"small-{n}", "4g.40gb", duration=10) for n in range(queue))]
    Line(Board(gpus, best_fit, NOW, memory=memory)).turn(lease[0])
    with (
        patch.object(Outlook, "earliest", autospec=True, side_effect=Outlook.earliest) as earliest,
        patch.object(Index, "choose", autospec=True, side_effect=Index.choose) as choose,
    ):
        turns = list(Line(Board(gpus, best_fit, NOW, memory=memory)).serve(lease))
    assert len(turns) == min(queue, fleet - 1)
    return earliest.call_count, choose.call_count - len(turns)


def test_a_decision_costs_the_same_on_every_fleet() -> None:
    few, many = (_looks(fleet, 3, Memory()) for fleet in (2 * BEST, 20 * BEST))
    assert few == many


def test_who_asks_for_the_same_is_looked_at_once() -> None:
    gpus = [gpu(0, ("1g.10gb", 6, None))]
    with patch.object(Index, "choose", autospec=True, side_effect=Index.choose) as choose:
        list(line(*gpus).serve([waits(f"large-{n}", BIG) for n in range(200)]))
    assert choose.call_count == 1


def test_every_gpu_is_looked_at_again_after_a_while() -> None:
    memory = Memory()
    choices = (request(BIG),)
    memory.remember(choices, NOW, ("GPU-1",))
    assert memory.best(choices, NOW + LOOKED_FOR - minutes(0.1)) == ("GPU-1",)
    assert memory.best(choices, NOW + LOOKED_FOR) is None
    assert memory.best(choices, NOW - minutes(1)) is None, "a clock that was set back"
