"""What a person waiting for a server is told: an append-only list that any number of pages read, each at its own pace."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator, Callable

from mig_spawner.wire.lease import LeaseDocument, LeaseState, PlacementDocument

Event = dict[str, object]


class Progress:
    """The events of one start."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._changed = asyncio.Event()
        self.closed = False

    def say(self, message: str, percent: int) -> None:
        """Add a sentence; the same one twice in a row is said once. HTML in it is shown, not obeyed."""
        if self.closed or (self._events and self._events[-1]["message"] == message):
            return
        self._events.append({"progress": percent, "message": message, "html_message": html.escape(message)})
        self._wake()

    def close(self) -> None:
        """Nothing more will be said here; KubeSpawner goes on with the pod's events."""
        self.closed = True
        self._wake()

    @property
    def messages(self) -> list[str]:
        return [str(e["message"]) for e in self._events]

    async def events(self, over: Callable[[], bool]) -> AsyncIterator[Event]:
        """All events from the first on, until closed or `over()`, which is asked once a second."""
        index = 0
        while True:
            changed = self._changed
            while index < len(self._events):
                yield dict(self._events[index])
                index += 1
            if self.closed or over():
                return
            try:
                async with asyncio.timeout(1):
                    await changed.wait()
            except TimeoutError:
                continue

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def say_lease(progress: Progress, lease: LeaseDocument) -> None:
    """Tell where a lease stands."""
    match lease.state:
        case LeaseState.QUEUED:
            progress.say(_waiting(lease), 5)
        case LeaseState.GRANTED if lease.placement is not None:
            progress.say(_held(lease.placement), 10)
            progress.say("Cutting the slice…", 15)
        case LeaseState.READY | LeaseState.ACTIVE if lease.placement is not None:
            if _held(lease.placement) not in progress.messages:
                progress.say(_held(lease.placement), 10)
            progress.say("The slice is ready, the pod is starting.", 20)
        case _:
            pass


def _waiting(lease: LeaseDocument) -> str:
    if lease.position is None:
        return f"Waiting for {lease.asked}."
    of = "" if lease.queue_length is None else f" of {lease.queue_length}"
    return f"Waiting for {lease.asked}: position {lease.position}{of}."


def _held(placement: PlacementDocument) -> str:
    what = "Whole GPU" if placement.profile is None else f"Slice held: {placement.profile}"
    return f"{what} ({placement.memory_mib / 1024:.3g} GiB) on {placement.node}."
