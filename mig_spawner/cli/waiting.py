"""Waiting until a lease is ready, with word of how it goes."""

from __future__ import annotations

import time
from typing import Final

from mig_spawner.cli.outcome import Failed, Outcome
from mig_spawner.cli.show import Tell
from mig_spawner.errors import AllocatorUnavailable
from mig_spawner.wire.client import SyncAllocatorClient
from mig_spawner.wire.lease import LeaseDocument, LeaseState

LONG_POLL_S: Final = 30.0
_AWAY_S: Final = 2.0
_THERE: Final = (LeaseState.READY, LeaseState.ACTIVE)
_UNDECIDED: Final = (LeaseState.QUEUED, LeaseState.GRANTED)


def wait_ready(
    client: SyncAllocatorClient, lease: LeaseDocument, tell: Tell, *, timeout_s: float | None = None
) -> LeaseDocument:
    """The lease once its device is there. An allocator that is away is waited for as well.

    Raises:
        Failed: it has ended, or is not ready after `timeout_s` seconds.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while lease.state in _UNDECIDED:
        tell(lease.detail)
        left = LONG_POLL_S if until is None else until - time.monotonic()
        if left <= 0:
            raise Failed(f"{lease.detail} The time to wait is over; it keeps its place.", Outcome.WAITING)
        try:
            lease = client.lease(lease.lease_id, wait_s=min(left, LONG_POLL_S), known=lease)
        except AllocatorUnavailable as error:
            tell(f"{error} Still waiting.")
            time.sleep(min(_AWAY_S, max(left, 0)))
    if lease.state not in _THERE:
        raise Failed(f"Lease {lease.lease_id} has ended. {lease.detail}", Outcome.ENDED)
    return lease
