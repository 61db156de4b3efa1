"""Leases as an admin searches them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mig_spawner.allocator.document import lease_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.page.words import holder_name
from mig_spawner.allocator.paging import arrival, lease_cursor, page
from mig_spawner.allocator.store.codec import grant_of, state_of
from mig_spawner.domain.lease import Lease
from mig_spawner.wire.base import Document, Label
from mig_spawner.wire.lease import LeaseDocument, LeaseState

PAGE_LEASES: Final = 50


class LeaseQuery(Document):
    """Which leases: a part of a holder's, node's, GPU's or lease's name; a state; after which one to begin."""

    text: Label = ""
    state: LeaseState | None = None
    after: Label = ""


@dataclass(frozen=True, slots=True)
class LeaseListView:
    """Open leases that match, oldest first; `after` is where the next page begins, None on the last."""

    query: LeaseQuery
    leases: tuple[LeaseDocument, ...]
    found: int
    after: str | None
    now: datetime


def lease_list_view(ledger: Ledger, query: LeaseQuery) -> LeaseListView:
    """Search the open leases."""
    found = [lease for lease in ledger.open_leases() if _matches(lease, query)]
    shown, more = page(found, arrival, after=_after(query.after), limit=PAGE_LEASES)
    return LeaseListView(
        query=query,
        leases=tuple(lease_document(ledger, lease) for lease in shown),
        found=len(found),
        after=lease_cursor(shown[-1]) if more else None,
        now=ledger.now,
    )


def _after(cursor: str) -> tuple[int, str] | None:
    microseconds, _, lease_id = cursor.partition(".")
    return (int(microseconds), lease_id) if microseconds.isdecimal() and len(microseconds) < 20 else None


def _matches(lease: Lease, query: LeaseQuery) -> bool:
    if query.state is not None and state_of(lease) != query.state:
        return False
    grant = grant_of(lease)
    where = [] if grant is None else [grant.node, grant.placement.gpu_uuid]
    named = [holder_name(lease.holder), lease.holder.user_id, lease.lease_id, str(lease.request), *where]
    return query.text.lower() in "\n".join(named).lower()
