"""What the allocator can say about when somebody who waits will begin, at a bounded price.

All who wait are foreseen together and the result is kept: many people ask, and few things change. A forecast that is a moment old
is no less honest, so it is made anew only after several times as long as making it took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.queue.board import Outlooks, agreed_end
from mig_spawner.allocator.quota.check import within_quota
from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.fleet import GPUState, profile_names
from mig_spawner.domain.lease import Holder, Queued
from mig_spawner.domain.queue import Board, Memory
from mig_spawner.domain.queue.forecast import FORESEEN, Forecast, History, Range, foresee
from mig_spawner.domain.request import Request, SliceRequest, WholeRequest
from mig_spawner.domain.sentence import counted
from mig_spawner.wire.lease import RangeDocument

PAUSE: Final = 4
"""A forecast is made anew after so many times the time that it took."""
STEP: Final = timedelta(minutes=5)
OLD: Final = timedelta(seconds=5)


class Forecasts:
    """The forecasts as they were last made, by one process for all who ask it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Forecast | None] = {}
        self._revision = -1
        self._at: datetime | None = None
        self._not_before = 0.0
        self._memories = Memory(), Memory()

    def start(self, ledger: Ledger, lease: Queued, position: int) -> tuple[RangeDocument | None, str | None]:
        """When a lease will begin, or why nobody can tell. Who only reads has time to look ahead; a transaction that writes has not."""
        if ledger.reads_only:
            self._look(ledger)
        if position > FORESEEN:
            return None, f"More than {FORESEEN} wait ahead of it."
        if lease.lease_id not in self._found:
            return None, "It has just come. Look again in a moment."
        forecast = self._found[lease.lease_id]
        if forecast is None:
            return None, "Every GPU that could serve it is silent, cordoned or sick now."
        if forecast.latest is None:
            return None, _unknown(forecast)
        earliest = max(forecast.earliest, ledger.now)
        return RangeDocument(earliest=earliest, latest=max(forecast.latest, earliest)), None

    def newcomer(self, ledger: Ledger, profile: str | None) -> tuple[RangeDocument | None, str | None]:
        """When somebody would begin who asked for this now, in steps of `STEP` so that it is the same for a while; both None: no word."""
        if ledger.reads_only:
            self._look(ledger)
        if _key(profile) not in self._found:
            return None, None
        forecast = self._found[_key(profile)]
        if forecast is None or forecast.latest is None:
            return None, None if forecast is None else _unknown(forecast)
        earliest = max(forecast.earliest, ledger.now)
        latest = max(forecast.latest, earliest)
        return RangeDocument(earliest=_down(earliest), latest=_down(latest + STEP)), None

    def is_due(self, ledger: Ledger) -> bool:
        """Whether they should be made anew: something has changed, or time has passed, and the last time took not too long."""
        known = ledger.tx.revision == self._revision and self._at is not None and ledger.now - self._at < OLD
        return not known and time.monotonic() >= self._not_before

    def _look(self, ledger: Ledger) -> None:
        if not self.is_due(ledger) or not self._lock.acquire(blocking=False):
            return
        try:
            began = time.thread_time()
            self._found = foreseen(ledger, self._memories, newcomers=_newcomers(ledger))
            self._revision, self._at = ledger.tx.revision, ledger.now
            self._not_before = time.monotonic() + PAUSE * (time.thread_time() - began)
        finally:
            self._lock.release()


def _unknown(forecast: Forecast) -> str:
    return (
        f"It has to wait for {counted(forecast.unknown, 'lease')} without an agreed end, "
        "and too few have ended here to estimate how long that takes."
    )


def _down(moment: datetime) -> datetime:
    return moment - timedelta(seconds=moment.timestamp() % STEP.total_seconds())


def _key(profile: str | None) -> str:
    """By what a newcomer is found; no lease has such an id."""
    return f"? {profile or ''}"


def _newcomers(ledger: Ledger) -> Iterator[Queued]:
    """Somebody for each thing that can be asked for."""
    requests: list[Request] = [SliceRequest(name) for name in profile_names([state for state, _ in ledger.kinds])]
    if any(state.can_be_whole for state, _ in ledger.kinds):
        requests.append(WholeRequest())
    for request in requests:
        profile = str(request.profile) if isinstance(request, SliceRequest) else None
        yield Queued(lease_id=_key(profile), holder=Holder("?"), request=request, queued_at=ledger.now)


def foreseen(
    ledger: Ledger,
    memories: tuple[Memory, Memory],
    *,
    newcomers: Iterable[Queued] = (),
    instead: Mapping[str, GPUState] | None = None,
) -> dict[str, Forecast | None]:
    """The forecasts of the first in line, by `lease_id`; None where no GPU could serve one now.

    Args:
        newcomers: behind all of them.
        instead: GPUs, by `gpu_uuid`, as they would be.
    """
    changed = instead or {}
    history = History(ledger.tx.held_seconds())
    settle_after = ledger.setting.settle_after

    def ends(lease: Holding) -> tuple[datetime, datetime | None]:
        agreed = agreed_end(ledger, lease)
        early, late = history.remaining(ledger.now - lease.grant.granted_at)
        latest = agreed if agreed is not None else None if late is None else ledger.now + late + settle_after
        return min(ledger.now + early, agreed or ledger.now + early), latest

    def lasts(lease: Queued) -> Range:
        early, late = history.remaining(timedelta(0))
        if lease.duration_s is None:
            return early, late
        agreed = timedelta(seconds=lease.duration_s)
        return min(early, agreed), agreed

    earmarks = ledger.tx.earmarks()
    boards = [
        Board(
            Outlooks(ledger, end, changed),
            ledger.ranking,
            ledger.now,
            memory=memory,
            earmarks=earmarks,
            apart=ledger.setting.keep_apart,
        )
        for end, memory in zip((lambda lease: ends(lease)[0], lambda lease: ends(lease)[1]), memories, strict=True)
    ]
    with closing(ledger.tx.queue()) as queue:
        return foresee(within_quota(ledger, queue), boards[0], boards[1], lasts, settle_after, newcomers)
