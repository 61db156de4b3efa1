"""Events and availability for the streams of this process.

What is new is read from the ledger once, not once for each who watches. The newest events are kept here to be handed out; whoever
comes with an older number reads the ledger itself. Nothing here is the truth: a process that starts with nothing serves the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mig_spawner.allocator.changes import Changes, Run
from mig_spawner.allocator.document import availability
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.service import Desk
from mig_spawner.allocator.store.outbox import EventRecord
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.event import LeaseEvent
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.problem import ProblemCode

PAGE: Final = 500
RECENT: Final = 2000
BUSY_S: Final = 1.0
"""While leases move, what is free is worked out so often."""
QUIET_S: Final = 10.0
"""And so often when none does: a node may have become silent."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event and its JSON."""

    event: LeaseEvent
    text: str

    @classmethod
    def of(cls, record: EventRecord) -> Told:
        lease = LeaseDocument.model_validate_json(record.lease)
        event = LeaseEvent(number=record.number, kind=record.kind, at=record.at, lease=lease)
        return cls(event, event.model_dump_json())


class Feed:
    """Serves the streams of this process.

    Args:
        limit: how many streams one caller may have open at once.

    Attributes:
        revision: of the ledger when it was last read.
    """

    def __init__(self, desk: Desk, changes: Changes, run: Run, *, limit: int) -> None:
        self._desk = desk
        self._changes = changes
        self._run = run
        self._limit = limit
        self._open: Counter[str] = Counter()
        self._lock = asyncio.Lock()
        self._recent: deque[Told] = deque()
        self._from: int | None = None
        self._free: tuple[Availability, float, int] | None = None
        self.revision = -1

    @contextmanager
    def place(self, who: str) -> Iterator[None]:
        """One of the streams that a caller may have.

        Raises:
            AllocatorRefused: it has as many as it may.
        """
        if self._open[who] >= self._limit:
            raise refusal(
                ProblemCode.TOO_MANY_STREAMS, f"{who} has {self._limit} event streams open. Close one, or share one."
            )
        self._open[who] += 1
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

    @property
    def streams(self) -> int:
        """How many are open."""
        return self._open.total()

    async def range(self) -> tuple[int, int]:
        """The number of the last event that is lost, and of the last one there is."""

        def read() -> tuple[int, int]:
            with self._desk.reading(view=False) as ledger:
                return ledger.tx.event_range()

        return await self._run(read)

    async def after(self, number: int) -> Sequence[Told]:
        """The events after a number, at most `PAGE`."""
        await self._refresh()
        if self._from is not None and number >= self._from:
            return [told for told in self._recent if told.event.number > number][:PAGE]
        return [Told.of(record) for record in (await self._read(number))[1]]

    async def _refresh(self) -> None:
        if self._from is not None and self._changes.revision <= self.revision:
            return
        async with self._lock:
            while self._from is None or self._changes.revision > self.revision:
                if self._from is None:
                    self._from = (await self.range())[1]
                last = self._recent[-1].event.number if self._recent else self._from
                revision, records = await self._read(last)
                for record in records:
                    self._keep(Told.of(record))
                if len(records) < PAGE:
                    self.revision = revision

    def _keep(self, told: Told) -> None:
        self._recent.append(told)
        if len(self._recent) > RECENT:
            self._from = self._recent.popleft().event.number

    async def _read(self, after: int) -> tuple[int, list[EventRecord]]:
        def read() -> tuple[int, list[EventRecord]]:
            with self._desk.reading(view=False) as ledger:
                return ledger.tx.revision, ledger.tx.events(after=after, limit=PAGE)

        return await self._run(read)

    async def availability(self) -> Availability:
        """What is free, as it was a moment ago at most."""
        async with self._lock:
            if self._free is None or self.until_look() <= 0:
                document, revision = await self._run(self._availability)
                self._free = (document, self._now(), revision)
            return self._free[0]

    def until_look(self) -> float:
        """Seconds until what is free should be worked out again."""
        if self._free is None:
            return 0
        _, at, revision = self._free
        return at + (BUSY_S if self.revision > revision else QUIET_S) - self._now()

    def _availability(self) -> tuple[Availability, int]:
        with self._desk.reading() as ledger:
            return availability(ledger), ledger.tx.revision

    _now: Callable[[], float] = staticmethod(lambda: asyncio.get_running_loop().time())
