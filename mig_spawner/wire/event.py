"""What is told to those who watch: leases that moved, and what is free now.

`GET api/v1/events` sends them as server-sent events, each under its `kind`; webhooks get those of leases.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from mig_spawner.wire.availability import Availability
from mig_spawner.wire.base import Answer
from mig_spawner.wire.lease import LeaseDocument


class EventKind(StrEnum):
    """What happened to a lease. A closed set."""

    QUEUED = "queued"
    """Its device could not be made: it waits again, at its old place."""
    GRANTED = "granted"
    """It has a placement; the device is being made."""
    READY = "ready"
    """The device is there."""
    ACTIVE = "active"
    """Its holder has taken it."""
    MOVED = "moved"
    """It is on another device than before: its node picked that one, or gave its own to somebody else."""
    EXPIRING = "expiring"
    """Its time is over soon. Told once for each end that was agreed."""
    ENDED = "ended"
    """It is a right to nothing any more; `reason` says why. Its slice may still be cleaned up."""
    CLOSED = "closed"
    """Its slice is free again, and `gpu_seconds` is final. Only of a lease that had one."""


AVAILABILITY: Final = "availability"
GAP: Final = "gap"


class LeaseEvent(Answer):
    """Something happened to a lease.

    Attributes:
        number: grows with time; never repeats. The `id` of the server-sent event.
        lease: as it was then.
    """

    number: int
    kind: EventKind
    at: datetime
    lease: LeaseDocument


class AvailabilityEvent(Answer):
    """What is free has changed; it has no number, since only the newest one matters."""

    kind: Literal["availability"] = "availability"
    availability: Availability


class GapEvent(Answer):
    """Events between the last one seen and `number` are not known any more: read leases anew, then go on."""

    kind: Literal["gap"] = "gap"
    number: int


Event = LeaseEvent | AvailabilityEvent | GapEvent
