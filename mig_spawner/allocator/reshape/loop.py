"""Looking again and again what could be cut anew: one replica for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

from mig_spawner.allocator import loops
from mig_spawner.allocator.reshape.rule import ReshapeTraits
from mig_spawner.allocator.reshape.service import WHO, ReshapeService
from mig_spawner.allocator.service import Desk

Run = Callable[[Callable[[], object]], Awaitable[object]]


def reshape_tasks(
    traits: ReshapeTraits, desk: Desk, service: ReshapeService, run: Run
) -> Iterator[Coroutine[Any, Any, None]]:
    """What runs as long as the allocator: none, if it is told never to look."""
    seconds = traits.reshape_interval
    if seconds <= 0:
        return

    def in_turn() -> None:
        with desk.writing(WHO) as ledger:
            mine = ledger.tx.take_turn("reshape", timedelta(seconds=seconds))
        if mine:
            service.review()

    async def step() -> None:
        await run(in_turn)

    async def look() -> None:
        await asyncio.sleep(seconds)  # nodes report first
        await loops.every(seconds, step, "reshape")

    yield look()
