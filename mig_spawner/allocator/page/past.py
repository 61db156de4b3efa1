"""What was: the audit, and the leases that somebody held before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mig_spawner.allocator.document import lease_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.store.history import Change, Mark
from mig_spawner.wire.base import Document, Label
from mig_spawner.wire.lease import LeaseDocument

PAGE_ROWS: Final = 50
PAGE_ENDED: Final = 20
MOST: Final = (1 << 31) - 1


class AuditQuery(Document):
    """Which rows: with a text in any of their words; after which one to go on."""

    text: Label = ""
    after: Label = ""


@dataclass(frozen=True, slots=True)
class AuditView:
    """Rows of the audit, newest first; `after` is where the next page begins, None on the last."""

    query: AuditQuery
    rows: tuple[Change, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class EndedView:
    """What one person held before, newest first; `after` is where the next page begins, None on the last."""

    leases: tuple[LeaseDocument, ...]
    after: str | None


def audit_view(ledger: Ledger, query: AuditQuery) -> AuditView:
    rows, mark = ledger.tx.changes(text=query.text.strip(), before=_mark(query.after), limit=PAGE_ROWS)
    return AuditView(query, tuple(rows), None if mark is None else f"{mark[0]}.{mark[1]}")


def _mark(text: str) -> Mark | None:
    first, _, second = text.partition(".")
    usable = all(part.isascii() and part.isdecimal() and len(part) < 11 for part in (first, second))
    return (min(int(first), MOST), min(int(second), MOST)) if usable else None


def ended_view(ledger: Ledger, person: str, before: str) -> EndedView:
    """A page of what a person held."""
    found = ledger.tx.closed_leases(user_name=person, before=before or None, limit=PAGE_ENDED + 1)
    shown = found[:PAGE_ENDED]
    more = len(found) > PAGE_ENDED
    return EndedView(
        tuple(lease_document(ledger, lease) for lease in shown), shown[-1].lease_id if more and shown else None
    )
