"""Making plans in the background, while the old one serves."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

from mig_spawner.allocator import loops
from mig_spawner.allocator.foresight.codec import Kinds, jobs_to_text, kinds_from_text
from mig_spawner.allocator.foresight.due import Due, due
from mig_spawner.allocator.foresight.ranking import WORTHS
from mig_spawner.allocator.foresight.trait import PolicyTraits
from mig_spawner.allocator.service import Desk
from mig_spawner.domain.policy import Plan
from mig_spawner.errors import StoreError

Run = Callable[[Callable[[], object]], Awaitable[object]]

log = logging.getLogger(__name__)

MODULE: Final = "mig_spawner.allocator.foresight"
TIMEOUT_S: Final = 900
WHO: Final = "planner"


class Foresight:
    """Keeps the plan in the ledger up to date. Replicas may all do so: the first plan of a number counts."""

    def __init__(self, desk: Desk, run: Run) -> None:
        """`run` calls a function in a thread."""
        self._desk = desk
        self._run = run

    async def step(self) -> None:
        """Make a plan if one is due. It takes as long as it takes."""
        found = await self._run(self._due)
        if not isinstance(found, Due):
            return
        kinds = await self._made(found)
        await self._run(lambda: self._put(found, Plan(found.demand, kinds)))

    def _due(self) -> Due | None:
        with self._desk.reading() as ledger:
            return due(ledger)

    def _put(self, made: Due, plan: Plan) -> None:
        with self._desk.writing(WHO) as ledger:
            first = ledger.tx.put_plan(made.number, made.arrivals, plan)
        if first:
            winners = ", ".join(sorted({kind.winner for kind in plan.kinds.values()})) or "no kind of GPU"
            log.info("Plan %d for %d requests so far: %s", made.number, made.arrivals, winners)

    async def _made(self, wanted: Due) -> Kinds:
        if not wanted.jobs:
            return {}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        text = jobs_to_text(wanted.jobs, WORTHS[self._desk.setting.policy])
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output, _ = await process.communicate(text.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise StoreError(f"The process that plans ended with {process.returncode}; the plan so far goes on.")
        return kinds_from_text(output.decode())


def foresight_tasks(traits: PolicyTraits, desk: Desk, run: Run) -> Iterator[Coroutine[Any, Any, None]]:
    """What runs as long as the allocator: none, if it is told never to plan."""
    if traits.plan_interval > 0:
        yield _every(traits.plan_interval, Foresight(desk, run))


async def _every(seconds: float, foresight: Foresight) -> None:
    # Nodes report first, and whoever starts the allocator often is not made to wait for a plan each time.
    await asyncio.sleep(seconds)
    await loops.every(seconds, foresight.step, "planner")
