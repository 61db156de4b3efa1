"""Moving to another node, when the one with the leased slice has no room for the pod.

A lease binds the pod to a node before the scheduler has looked at it, and what else the node lacks (CPU, memory) the allocator does
not know. So a pod that the scheduler cannot place is watched, and after a while it is deleted, its lease given back and another asked
for, elsewhere. The scheduler's own words go to whoever waits, and into the refusal if no other node can serve.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.progress import Progress

T = TypeVar("T")

MOVES: Final = 3
"""So often may one start move."""
MOVE_S: Final = 30.0
"""How long giving the old slice back may take, before another is had, at least."""
LOOK_S: Final = 0.5
_WORDS: Final = 500


class NoRoom(Exception):
    """The scheduler has not placed the pod for too long. The message is in its words."""


def unplaced(pod: dict[str, Any] | None) -> str | None:
    """The scheduler's words about a pod that it cannot place; None for any other pod."""
    if pod is None or pod["metadata"].get("deletionTimestamp"):
        return None
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if (condition.get("type"), condition.get("status"), condition.get("reason")) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        ):
            return str(condition.get("message") or "it gives no reason.")[:_WORDS]
    return None


class Moves:
    """The moves of one start.

    Args:
        timeout_s: how long a pod may stay without a place; 0 for ever.

    Attributes:
        left: the nodes that had no room.
        progress: what is told of the moves; open from the first to the end of the start.
        marker: KubeSpawner's mark of the last event before this start; a repeated start keeps it, so that events go on.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._words = ""
        self._waited_s = 0.0
        self.left: tuple[str, ...] = ()
        self.progress = Progress()
        self.marker: str | None = None

    @property
    def longest_s(self) -> float:
        """How much longer a start may take for them."""
        return MOVES * (self._timeout_s + MOVE_S) if self._timeout_s else 0.0

    async def watch(self, start: Coroutine[Any, Any, T], words: Callable[[], str | None]) -> T:
        """Run a start to its end.

        Args:
            words: the scheduler's, while it cannot place the pod.

        Raises:
            NoRoom: it could not for too long; the start was cancelled.
        """
        task = asyncio.ensure_future(start)
        try:
            since: float | None = None
            while True:
                done, _ = await asyncio.wait({task}, timeout=LOOK_S)
                if done:
                    return task.result()
                said, now = words(), time.monotonic()
                since = None if said is None else now if since is None else since
                if said is not None and since is not None and self._timeout_s and now - since >= self._timeout_s:
                    raise NoRoom(said)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def leave(self, node: str, room: NoRoom) -> None:
        """Never again to this node.

        Raises:
            SpawnRefused: that was the last move.
        """
        self.left += (node,)
        self._words = str(room)
        if len(self.left) > MOVES:
            raise self.refusal("That were enough nodes for one start.")
        self.progress.say(f"The scheduler finds no room on {node}: {room} Looking for a slice on another node.", 20)

    def refusal(self, why: str) -> SpawnRefused:
        """No other node can serve, for this reason."""
        nodes = ", ".join(self.left)
        return SpawnRefused(
            f"There is no room for this server on {nodes}. The scheduler says: {self._words} No other node could serve it: {why}",
            reason=Reason.CAPACITY,
        )

    def budget_s(self, queue_timeout: float) -> float:
        """How long to wait in line now: what is left of it, and long enough for the old slice to be given back."""
        return max(queue_timeout - self._waited_s, MOVE_S) if self.left else queue_timeout

    def waited(self, seconds: float) -> None:
        """So long this start has waited in line now."""
        self._waited_s += seconds


async def merged(*streams: AsyncIterator[T]) -> AsyncIterator[T]:
    """What all streams give, as it comes, until all have ended."""
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

    async def pump(stream: AsyncIterator[T]) -> None:
        try:
            async for item in stream:
                queue.put_nowait((item,))
        finally:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    try:
        open_streams = len(tasks)
        while open_streams:
            found = await queue.get()
            if found is None:
                open_streams -= 1
            else:
                yield found[0]
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
