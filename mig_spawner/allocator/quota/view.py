"""Quotas and use as documents."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.quota.text import standing_text
from mig_spawner.allocator.quota.use import Use
from mig_spawner.allocator.store.base import Past
from mig_spawner.domain.quota import Spell, Standing, Unit, quotas_of
from mig_spawner.domain.rule import Person
from mig_spawner.wire.quota import QuotaDocument, Usage, UsageKey, UsageRow

WHOLE: Final = "whole"
_HOUR_S: Final = 3600
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def quota_documents(ledger: Ledger, person: Person) -> tuple[QuotaDocument, ...]:
    """What is left for a person."""
    quotas = quotas_of(ledger.menu.quotas, person)
    if not quotas:
        return ()
    use = Use(ledger)
    return tuple(_document(use.standing(quota)) for quota in quotas)


def _document(standing: Standing) -> QuotaDocument:
    rule = standing.quota.rule
    return QuotaDocument(
        name=rule.name,
        per=rule.scope,
        subject=standing.quota.subject,
        unit=rule.unit,
        limit=rule.limit,
        used=_rounded(standing.used, rule.unit),
        left=_rounded(standing.left, rule.unit),
        window=None if rule.window is None else rule.window.total_seconds(),
        resets_at=standing.resets_at,
        contact=rule.contact,
        text=f"{standing_text(standing)}.",
    )


def _rounded(value: float, unit: Unit) -> float:
    """Hours grow all the time: what has not changed much shall look the same, for those who ask again and again."""
    return round(value, 2 if unit is Unit.GPU_HOURS else 4)


def usage(ledger: Ledger, by: UsageKey, window: timedelta, person: str | None = None) -> Usage:
    """What was used within the last so much time, by closed leases and by those that still hold something.

    Args:
        person: of this person only; None for everybody.
    """
    now = ledger.now
    since = now - window
    totals: dict[str, _Total] = defaultdict(_Total)
    everything = 0.0
    for past, is_open in _spells(ledger, since, person):
        seconds = past.spell.hours_since(since) * _HOUR_S
        everything += seconds
        for key in _keys(past, by):
            totals[key].add(seconds, is_open=is_open)
    rows = [UsageRow(key=k, leases=t.leases, open=t.open, gpu_seconds=round(t.seconds, 3)) for k, t in totals.items()]
    return Usage(
        since=since,
        until=now,
        by=by,
        rows=tuple(sorted(rows, key=lambda row: (-row.gpu_seconds, row.key))),
        gpu_seconds=round(everything, 3),
    )


@dataclass
class _Total:
    seconds: float = 0.0
    leases: int = 0
    open: int = 0

    def add(self, seconds: float, *, is_open: bool) -> None:
        self.seconds += seconds
        self.leases += 1
        self.open += is_open


def _spells(ledger: Ledger, since: datetime, person: str | None) -> Iterator[tuple[Past, bool]]:
    for past in ledger.tx.closed_spells(since, person=person):
        yield past, False
    for lease in ledger.holding.values():
        if person is None or lease.person.name == person:
            grant = lease.grant
            profile = None if grant.profile is None else str(grant.profile)
            yield Past(lease.person, profile, Spell(grant.granted_at, ledger.now, grant.share)), True


def _keys(past: Past, by: UsageKey) -> Iterable[str]:
    match by:
        case UsageKey.PERSON:
            return (past.person.name,)
        case UsageKey.GROUP:
            return past.person.groups or ("",)
        case UsageKey.PROFILE:
            return (past.profile or WHOLE,)


def usage_csv(found: Usage) -> str:
    """The same for spreadsheets. A name that a spreadsheet would take for a formula is quoted away."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([found.by.value, "leases", "open", "gpu_seconds", "gpu_hours", "since", "until"])
    for row in found.rows:
        hours = f"{row.gpu_seconds / _HOUR_S:.4f}"
        key = f"'{row.key}" if row.key.startswith(_FORMULA) else row.key
        times = [found.since.isoformat(), found.until.isoformat()]
        writer.writerow([key, row.leases, row.open, f"{row.gpu_seconds:.3f}", hours, *times])
    return out.getvalue()
