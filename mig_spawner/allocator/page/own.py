"""My slices: the open leases of one person, and what is free."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mig_spawner.allocator.document import availability, lease_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.lease import LeaseDocument


@dataclass(frozen=True, slots=True)
class OwnView:
    """What a person holds now, oldest first, and what could be had."""

    leases: tuple[LeaseDocument, ...]
    availability: Availability
    now: datetime


def own_view(ledger: Ledger, person: str | None) -> OwnView:
    """The page of a person; of nobody's leases for a service."""
    own = [lease for lease in ledger.tx.open_leases() if person is not None and lease.holder.user_name == person]
    return OwnView(
        leases=tuple(lease_document(ledger, lease) for lease in own),
        availability=availability(ledger),
        now=ledger.now,
    )
