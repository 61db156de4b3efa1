"""What all spawners of one hub process share: clients of the allocator, and work that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from mig_spawner.wire.client import ONCE, AllocatorClient

T = TypeVar("T")


class PerHub(Generic[T]):
    """Something that all servers of one hub, which is one event loop, have together.

    Args:
        make: makes it, for a hub that has none yet.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._of: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def here(self) -> T:
        """That of the hub in whose event loop this is called.

        Raises:
            RuntimeError: no event loop runs.
        """
        loop = asyncio.get_running_loop()
        if loop not in self._of:
            self._of[loop] = self._make()
        return self._of[loop]


_clients: PerHub[dict[tuple[str, str, float], AllocatorClient]] = PerHub(dict)
_tasks: set[asyncio.Task[Any]] = set()


def shared_client(url: str, token: str, timeout_s: float) -> AllocatorClient:
    """The one client of this hub process for an allocator: all spawners share its connections."""
    clients = _clients.here()
    key = (url, token, timeout_s)
    if key not in clients:
        # A start of a server has its own rule for asking again, and a form would rather be shown without counts than late.
        clients[key] = AllocatorClient(url, token, timeout_s=timeout_s, patience=ONCE)
    return clients[key]


async def close_clients() -> None:
    """End the background work and close the clients of the running event loop; for tests and orderly shutdowns."""
    loop = asyncio.get_running_loop()
    for task in [t for t in _tasks if t.get_loop() is loop]:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    clients = _clients.here()
    while clients:
        await clients.popitem()[1].aclose()


def in_background(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Run something that nobody waits for. It has to handle its own errors."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task
