"""Long lists in pages. A page goes on after a key, not at a number: whatever comes or goes meanwhile, nothing is told twice or missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from mig_spawner.domain.lease import Lease, Queued

I = TypeVar("I")  # noqa: E741  # an item
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Arrival = tuple[int, str]
"""When a lease was asked for, microseconds since 1970, and its id, which tells apart those of one moment."""


Place = tuple[int, int, str]
"""Minus the priority, then the arrival."""


def page(items: Iterable[I], key: Callable[[I], Any], *, after: Any, limit: int | None) -> tuple[list[I], bool]:
    """The items in order of a key, those after one (None: from the first), at most so many; and whether there are more."""
    left = sorted((item for item in items if after is None or key(item) > after), key=key)
    return left[:limit], limit is not None and len(left) > limit


def arrival(lease: Lease) -> Arrival:
    return (lease.queued_at - _EPOCH) // timedelta(microseconds=1), lease.lease_id


def moment(arrived: Arrival) -> tuple[datetime, str]:
    """An arrival, its time as a time."""
    microseconds, lease_id = arrived
    return _EPOCH + timedelta(microseconds=microseconds), lease_id


def place(lease: Queued) -> Place:
    """Where somebody is in line, by a key that stays."""
    return (-lease.priority, *arrival(lease))


def queue_cursor(lease: Queued) -> str:
    """What `QUEUE_CURSOR` reads: the page after this one who waits."""
    return f"{lease.priority}.{lease_cursor(lease)}"


def lease_cursor(lease: Lease) -> str:
    """What `LEASE_CURSOR` reads: the page after this lease."""
    microseconds, lease_id = arrival(lease)
    return f"{microseconds}.{lease_id}"
