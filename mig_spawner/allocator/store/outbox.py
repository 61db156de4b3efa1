"""The part of the port that is about telling: events that were written with what they tell of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mig_spawner.wire.event import EventKind


@dataclass(frozen=True, slots=True)
class News:
    """An event to be written.

    Attributes:
        lease: the lease as a JSON document.
        warns_of: the end that an `expiring` event warns of; None for all others.
    """

    kind: EventKind
    lease_id: str
    lease: str
    warns_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event as it was written. `number` grows in the order of commits and never repeats."""

    number: int
    at: datetime
    kind: EventKind
    lease_id: str
    lease: str


class Outbox(ABC):
    """What a transaction can say of events."""

    @abstractmethod
    def add_events(self, news: Sequence[News]) -> None:
        """Write events, in this order, and put each on its way to the webhooks that want it. No two warn of the same end of a lease."""

    @abstractmethod
    def events(self, *, after: int, limit: int) -> list[EventRecord]:
        """The events that come after a number, at most so many."""

    @abstractmethod
    def event_range(self) -> tuple[int, int]:
        """The number of the last event that is not known any more, and of the last one there is; 0 and 0 when there never was any."""

    @abstractmethod
    def warned(self) -> frozenset[tuple[str, datetime]]:
        """The ends still to come that were warned of, with the id of their lease."""

    @abstractmethod
    def drop_events(self, before: datetime) -> int:
        """Forget events that are older, and their deliveries; how many events those were."""
