"""What is known of a place in line, in words: position, range and reason. Times are told as minutes from now, which need no time zone."""

from __future__ import annotations

import math
from datetime import datetime

from mig_spawner.wire.lease import LeaseDocument


def place(lease: LeaseDocument, now: datetime) -> str:
    """Where a queued lease stands."""
    said = f"Waiting for {_asked(lease)}{_position(lease)}."
    return " ".join(part for part in (said, _range(lease, now), _reason(lease)) if part)


def _asked(lease: LeaseDocument) -> str:
    return ", or else ".join((lease.asked, *lease.alternatives))


def _position(lease: LeaseDocument) -> str:
    if lease.position is None:
        return ""
    of = "" if lease.queue_length is None else f" of {lease.queue_length}"
    return f": position {lease.position}{of}"


def _reason(lease: LeaseDocument) -> str:
    """What the allocator adds; the place in line is said already."""
    before, line, after = lease.detail.partition(" in the queue.")
    return (after if line else before).strip()


def _range(lease: LeaseDocument, now: datetime) -> str:
    if lease.starts_between is None:
        return lease.cannot_tell or ""
    earliest, latest = (
        _minutes(moment, now) for moment in (lease.starts_between.earliest, lease.starts_between.latest)
    )
    if latest <= 1:
        return "It should start within a minute."
    if earliest == latest:
        return f"It should start in about {latest} minutes."
    return f"It should start in {earliest} to {latest} minutes."


def _minutes(moment: datetime, now: datetime) -> int:
    return max(math.ceil((moment - now).total_seconds() / 60), 0)
