"""What is used of quotas, in one transaction: by what is held and waits now, and by what was held within a window."""

from __future__ import annotations

from datetime import datetime, timedelta

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.held import least_size, subject_of
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.quota import Quota, Scope, Size, Standing, hours_left_at, room_at
from mig_spawner.domain.request import Request

_SECONDS_PER_HOUR = 3600


class Use:
    """What counts for quotas.

    Args:
        waiting: those in the queue count as well: what they wait for is promised to them.
        without: a lease in the queue that does not count, since it is the one that is decided about.
    """

    def __init__(self, ledger: Ledger, *, waiting: bool = True, without: str = "") -> None:
        self.ledger = ledger
        self._without = without
        self._queue: list[Queued] | None = None if waiting else []
        self._least: dict[Request, Size] = {}

    def standing(self, quota: Quota, needed: Size | None = None) -> Standing:
        """How much of a quota is used.

        Args:
            needed: when there is no room for so much more, say when there will be.
        """
        standing = Standing(quota, self._used(quota))
        if standing.left > 0 and (needed is None or standing.has_room(needed)):
            return standing
        return Standing(quota, standing.used, self._resets_at(quota, needed))

    def _used(self, quota: Quota) -> float:
        rule = quota.rule
        if rule.window is not None:
            return self._hours(quota, rule.window)
        promised = sum(self.least(lease.request).in_unit(rule.unit) for lease in self._waiting(quota))
        return self.ledger.held.total(subject_of(quota), rule.unit) + promised

    def _waiting(self, quota: Quota) -> list[Queued]:
        if self._queue is None:
            self._queue = [lease for lease in self.ledger.tx.queue() if lease.lease_id != self._without]
        return [lease for lease in self._queue if quota.counts(lease.person)]

    def least(self, request: Request) -> Size:
        """The least that can serve a request here."""
        if request not in self._least:
            self._least[request] = least_size(request, self.ledger.serving([request]))
        return self._least[request]

    def _hours(self, quota: Quota, window: timedelta) -> float:
        now = self.ledger.now
        since = now - window
        closed = self.ledger.tx.closed_seconds(since, person=_person(quota))
        past = sum(seconds for person, seconds in closed if quota.counts(person)) / _SECONDS_PER_HOUR
        return past + self.ledger.held.hours(subject_of(quota), since, now)

    def _resets_at(self, quota: Quota, needed: Size | None) -> datetime | None:
        rule, now = quota.rule, self.ledger.now
        pieces = self.ledger.held.pieces(subject_of(quota))
        if rule.window is not None:
            past = self.ledger.tx.closed_spells(now - rule.window, person=_person(quota))
            spells = [one.spell for one in past if quota.counts(one.person)]
            return hours_left_at(rule.limit, rule.window, [*spells, *(piece.until(now) for piece in pieces)], now)
        amount = 1.0 if needed is None else needed.in_unit(rule.unit)
        held = [(piece.ends, piece.size.in_unit(rule.unit)) for piece in pieces]
        promised = [(None, self.least(lease.request).in_unit(rule.unit)) for lease in self._waiting(quota)]
        return room_at(rule.limit, amount, [*held, *promised])


def _person(quota: Quota) -> str | None:
    return quota.subject if quota.rule.scope is Scope.PERSON else None
