"""When what is held is given back at the latest, the earliest first for each kind of slice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Final

from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.lease import Releasing

Kind = tuple[str, bool, int]
"""A model, whether a whole GPU of it, and the MiB of memory."""
_SPARE: Final = 64


class Ends:
    """The agreed ends of leases. What has ended is skipped when it comes to the front.

    Args:
        holding: the leases that hold something now, by id.
    """

    def __init__(self, holding: Mapping[str, Holding]) -> None:
        self._holding = holding
        self._lines: dict[Kind, list[tuple[datetime, str]]] = defaultdict(list)

    def put(self, lease: Holding) -> None:
        """Take in a lease as it is now."""
        ends = _end(lease)
        if ends is None:
            return
        line = self._lines[_kind(lease)]
        heappush(line, (ends, lease.lease_id))
        if len(line) > 4 * len(self._holding) + _SPARE:
            line[:] = {entry for entry in line if self._stands(entry)}
            heapify(line)

    def first(self, matches: Callable[[Kind], bool]) -> datetime | None:
        """The earliest of the kinds that match; None if none has an end."""
        ends = [end for kind in self._lines if matches(kind) and (end := self._first(kind)) is not None]
        return min(ends, default=None)

    def _first(self, kind: Kind) -> datetime | None:
        line = self._lines[kind]
        while line and not self._stands(line[0]):
            heappop(line)
        return line[0][0] if line else None

    def _stands(self, entry: tuple[datetime, str]) -> bool:
        lease = self._holding.get(entry[1])
        return lease is not None and _end(lease) == entry[0]


def _end(lease: Holding) -> datetime | None:
    return None if isinstance(lease, Releasing) else lease.grant.expires_at


def _kind(lease: Holding) -> Kind:
    return lease.grant.model, lease.grant.profile is None, lease.grant.memory_mib
