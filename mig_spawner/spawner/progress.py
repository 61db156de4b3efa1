"""What a person waiting for a server is told: an append-only list that any number of pages read, each at its own pace."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from mig_spawner.spawner.waiting.line import place
from mig_spawner.spawner.waiting.stage import Stage, mark
from mig_spawner.wire.lease import LeaseDocument, LeaseState, PlacementDocument

Event = dict[str, object]


class Progress:
    """The events of one start."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._changed = asyncio.Event()
        self.closed = False

    def say(self, message: str, percent: int, stage: Stage | None = None) -> None:
        """Add a sentence; the same one twice in a row is said once. HTML in it is shown, not obeyed.

        Args:
            stage: what goes on from now; None for whatever goes on anyway.
        """
        if self.closed or (self._events and self._events[-1]["message"] == message):
            return
        event: Event = {"progress": percent, "message": message, "html_message": html.escape(message)}
        self._events.append(event if stage is None else event | mark(stage))
        self._wake()

    def close(self) -> None:
        """Nothing more will be said here; KubeSpawner goes on with the pod's events."""
        self.closed = True
        self._wake()

    @property
    def messages(self) -> list[str]:
        return [str(e["message"]) for e in self._events]

    @property
    def told(self) -> tuple[Event, ...]:
        """All events so far."""
        return tuple(self._events)

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
            progress.say(place(lease, datetime.now(UTC)), 5, Stage.WAITING)
        case LeaseState.GRANTED if lease.placement is not None:
            progress.say(_held(lease.placement), 10, Stage.HELD)
            progress.say("Cutting the slice…", 15, Stage.HELD)
        case LeaseState.READY | LeaseState.ACTIVE if lease.placement is not None:
            if _held(lease.placement) not in progress.messages:
                progress.say(_held(lease.placement), 10, Stage.HELD)
            progress.say("The slice is ready, the pod is starting.", 20, Stage.NODE)
        case _:
            pass


def _held(placement: PlacementDocument) -> str:
    what = "Whole GPU" if placement.profile is None else f"Slice held: {placement.profile}"
    return f"{what} ({placement.memory_mib / 1024:.3g} GiB) on {placement.node}."
