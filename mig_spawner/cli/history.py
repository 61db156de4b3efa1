"""What the ledger remembers, as arrivals that can be simulated and planned for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain.lease import Closed, Lease, Queued
from mig_spawner.domain.request import DeviceRequest, Request
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.trace import Arrival, from_zero

MOST: Final = 100_000
"""Leases, the newest."""
FILE: Final = "sqlite:///"


def history(url: str) -> list[Arrival]:
    """The newest leases of a ledger, whatever became of them.

    Who was served stayed from the grant to the end, or until now. Who never was would have stayed as long as half of those who asked for
    the same, at least. Leases on one device by name are left out: that device is not in a simulation.

    Raises:
        InvalidRequest: no such database, or no leases in it.
        StoreUnavailable: it cannot be read, or is of another version.
    """
    if url.startswith(FILE) and not Path(url.removeprefix(FILE)).is_file():
        raise InvalidRequest(f"There is no ledger {url}.")
    store = SQLStore(url)
    try:
        store.open()
        with store.reading() as tx:
            leases, now = tx.newest(MOST), tx.now
    finally:
        store.close()
    arrivals = as_arrivals(leases, now)
    if not arrivals:
        raise InvalidRequest(f"The ledger {url} has no leases yet.")
    return arrivals


def as_arrivals(leases: Sequence[Lease], now: datetime) -> list[Arrival]:
    """Leases as arrivals, in order of time."""
    known = [lease for lease in leases if not isinstance(lease.request, DeviceRequest)]
    stays: dict[Request, list[float]] = defaultdict(list)
    for lease in known:
        stay = _stay(lease, now)
        if stay is not None:
            stays[lease.request].append(stay)
    all_stays = [stay for some in stays.values() for stay in some]
    usual = {request: median(some) for request, some in stays.items()}
    rest = median(all_stays) if all_stays else 3600.0
    found = []
    for lease in known:
        stay = _stay(lease, now)
        wait = inf if lease.wait_until is None else max((lease.wait_until - lease.queued_at).total_seconds(), 0.0)
        found.append(
            Arrival(
                at=lease.queued_at.timestamp(),
                duration=usual.get(lease.request, rest) if stay is None else stay,
                request=lease.request,
                group=min(lease.groups, default=""),
                holder=str(lease.holder),
                wait=wait,
            )
        )
    return from_zero(found)


def _stay(lease: Lease, now: datetime) -> float | None:
    """How long somebody had what he asked for, seconds; None if he never had it."""
    if isinstance(lease, Queued) or lease.grant is None:
        return None
    end = lease.closed_at if isinstance(lease, Closed) else now
    return max((end - lease.grant.granted_at).total_seconds(), 0.0)
