"""My slices: what one person holds, what they held, and what is free."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mig_spawner.allocator.document import availability, lease_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.store.base import AuditRow
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.problem import ProblemCode

ENDABLE: Final = frozenset({LeaseState.QUEUED, LeaseState.GRANTED, LeaseState.READY, LeaseState.ACTIVE})
"""In these states a lease can still be given back."""


@dataclass(frozen=True, slots=True)
class OwnView:
    """What a person holds now, oldest first, and what could be had."""

    leases: tuple[LeaseDocument, ...]
    availability: Availability
    now: datetime


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One lease and what happened to it, oldest first."""

    lease: LeaseDocument
    life: tuple[AuditRow, ...]
    now: datetime

    @property
    def endable(self) -> bool:
        return self.lease.state in ENDABLE


def own_view(ledger: Ledger, person: str | None) -> OwnView:
    """The page of a person; of nobody's leases for a service."""
    own = [lease for lease in ledger.tx.open_leases() if person is not None and lease.holder.user_name == person]
    return OwnView(
        leases=tuple(lease_document(ledger, lease) for lease in own),
        availability=availability(ledger),
        now=ledger.now,
    )


def lease_view(ledger: Ledger, lease_id: str, *, person: str | None, sees_all: bool) -> LeaseView:
    """One lease, for its holder and for admins. Somebody else's is not there."""
    lease = ledger.tx.lease(lease_id)
    if lease is None or not (sees_all or lease.holder.user_name == person):
        raise refusal(ProblemCode.NOT_FOUND, "There is no such lease, or it is not yours.")
    return LeaseView(lease_document(ledger, lease), tuple(ledger.tx.audit(lease_id)), ledger.now)
