"""When a start gives up a node: what counts as no room, for how long, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mig_spawner.spawner.error import SpawnRefused
from mig_spawner.spawner.move import MOVES, Moves, NoRoom, merged, unplaced

WORDS = "0/2 nodes are available: 1 Insufficient cpu."


def pod(
    *, status: str = "False", reason: str = "Unschedulable", message: str = WORDS, **metadata: Any
) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": status, "reason": reason, "message": message}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(pod(), WORDS, id="unschedulable"),
        pytest.param(pod(message=""), "it gives no reason.", id="without a word"),
        pytest.param(None, None, id="no pod"),
        pytest.param({"metadata": {}}, None, id="just made"),
        pytest.param({"metadata": {}, "status": {"conditions": None}}, None, id="no conditions"),
        pytest.param(pod(status="True"), None, id="placed"),
        pytest.param(pod(reason="SchedulingGated"), None, id="gated"),
        pytest.param(pod(deletionTimestamp="2026-03-01T00:00:00Z"), None, id="on its way out"),
    ],
)
def test_no_room_is_what_the_scheduler_calls_so(seen: dict[str, Any] | None, words: str | None) -> None:
    assert unplaced(seen) == words


def test_words_without_end_are_cut() -> None:
    assert len(unplaced(pod(message="no " * 1000)) or "") == 500


async def test_a_start_that_is_placed_in_time_is_left_alone() -> None:
    asked = 0

    def words() -> str | None:
        nonlocal asked
        asked += 1
        placed.set()
        return WORDS

    placed = asyncio.Event()

    async def start() -> str:
        await placed.wait()
        return "http://pod"

    assert await Moves(60).watch(start(), words) == "http://pod"
    assert asked == 1


async def test_a_start_without_room_is_cancelled_with_the_words() -> None:
    ended = asyncio.Event()

    async def start() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(NoRoom, match="Insufficient cpu"):
        await Moves(0.01).watch(start(), lambda: WORDS)
    assert ended.is_set()


async def test_a_failure_of_the_start_is_its_own() -> None:
    async def start() -> None:
        raise OSError("the API is away")

    with pytest.raises(OSError, match="the API is away"):
        await Moves(0.01).watch(start(), lambda: WORDS)


async def test_whoever_cancels_the_watch_cancels_the_start() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def start() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    watch = asyncio.create_task(Moves(0).watch(start(), lambda: WORDS))
    await began.wait()
    watch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch
    assert ended.is_set()


def test_nodes_are_left_one_by_one_and_not_without_end() -> None:
    moves = Moves(60)
    for number in range(MOVES):
        moves.leave(f"node-{number}", NoRoom(WORDS))
    assert moves.left == tuple(f"node-{number}" for number in range(MOVES))
    assert f"no room on node-0: {WORDS}" in moves.progress.messages[0]
    with pytest.raises(SpawnRefused) as refused:
        moves.leave("the-last", NoRoom("<b>"))
    assert "node-0, node-1, node-2, the-last" in refused.value.message
    assert "&lt;b&gt;" in refused.value.message_html


def test_time_in_line_is_shared_by_all_moves() -> None:
    moves = Moves(60)
    assert moves.budget_s(300) == 300
    assert moves.budget_s(0) == 0
    moves.waited(200)
    moves.leave("node", NoRoom(WORDS))
    assert moves.budget_s(300) == 100
    # Giving the old slice back takes its time, even for whoever does not wait.
    assert moves.budget_s(0) == 30


def test_turned_off_it_takes_no_time() -> None:
    assert Moves(0).longest_s == 0
    assert Moves(60).longest_s >= MOVES * 60


async def test_streams_are_merged_as_they_come() -> None:
    second_may_go = asyncio.Event()

    async def first() -> AsyncIterator[str]:
        yield "a"
        second_may_go.set()

    async def second() -> AsyncIterator[str]:
        await second_may_go.wait()
        yield "b"
        raise OSError("the end")

    seen = []

    async def read() -> None:
        async for item in merged(first(), second()):
            seen.append(item)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(OSError, match="the end"):
        await read()
    assert seen == ["a", "b"]


async def test_who_stops_reading_ends_all_streams() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    reader = merged(endless())
    assert await anext(reader) == 1
    await reader.aclose()  # type: ignore[attr-defined]
    assert ended.is_set()
