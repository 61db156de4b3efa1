"""My slices: what one person holds, what they held, and what is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.allocator.document import availability, lease_document
from mig_spawner.allocator.extension import Bound, bound_of, extendable, refusal_text
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.page.usage import USUAL_DAYS
from mig_spawner.allocator.quota.view import quota_documents, usage
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.store.base import AuditRow
from mig_spawner.domain.lease import Lease
from mig_spawner.domain.rule import Person
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.node import UsageDocument
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.quota import QuotaDocument, UsageKey

ENDABLE: Final = frozenset({LeaseState.QUEUED, LeaseState.GRANTED, LeaseState.READY, LeaseState.ACTIVE})
"""In these states a lease can still be given back."""
STEPS: Final = tuple(timedelta(hours=hours) for hours in (1, 2, 4, 8, 24, 72, 168))
"""By how much longer people ask for."""
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class OwnView:
    """What a person holds now, oldest first, what is left for them, and what could be had.

    Attributes:
        uses: what devices used when their node last reported, by `device_uuid`; absent where it is not measured.
        gpu_seconds: whole-GPU time of the last `USUAL_DAYS` days.
    """

    leases: tuple[LeaseDocument, ...]
    uses: Mapping[str, UsageDocument]
    quotas: tuple[QuotaDocument, ...]
    gpu_seconds: float
    days: int
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


@dataclass(frozen=True, slots=True)
class Longer:
    """One way to extend a lease: `more` seconds, so that it ends at `until`; `duration` is what that makes in all, seconds."""

    more: float
    until: datetime
    duration: float


@dataclass(frozen=True, slots=True)
class ExtendView:
    """For how much longer a lease could be kept.

    Attributes:
        choices: the shortest first; none where it cannot be extended.
        why: what is against more, a sentence; empty where nothing is.
    """

    lease: LeaseDocument
    choices: tuple[Longer, ...]
    why: str
    now: datetime


def own_view(ledger: Ledger, person: Person | None) -> OwnView:
    """The page of a person; of nobody's leases for a service."""
    name = None if person is None else person.name
    own = [] if name is None else ledger.tx.open_leases(user_name=name)
    leases = tuple(lease_document(ledger, lease) for lease in own)
    used = None if name is None else usage(ledger, UsageKey.PERSON, timedelta(days=USUAL_DAYS), name)
    return OwnView(
        leases=leases,
        uses=_uses(ledger, leases),
        quotas=() if person is None else quota_documents(ledger, person),
        gpu_seconds=0.0 if used is None else used.gpu_seconds,
        days=USUAL_DAYS,
        availability=availability(ledger),
        now=ledger.now,
    )


def _uses(ledger: Ledger, leases: tuple[LeaseDocument, ...]) -> dict[str, UsageDocument]:
    """What the devices of these leases used, as far as it is known."""
    nodes = {lease.placement.node for lease in leases if lease.placement is not None}
    return {use.device_uuid: use for node in nodes for use in ledger.usage_of(node)}


def extend_view(ledger: Ledger, lease_id: str, *, person: str | None, sees_all: bool) -> ExtendView:
    """For how much longer a lease could be kept, for its holder and for admins."""
    lease = _seen(ledger, lease_id, person=person, sees_all=sees_all)
    document = lease_document(ledger, lease)
    try:
        held, ends = extendable(lease)
    except AllocatorRefused as error:
        return ExtendView(document, (), str(error), ledger.now)
    bound = bound_of(ledger, held, ends)
    why = "" if bound is None else refusal_text(ledger, bound, ends)
    return ExtendView(document, tuple(_longer(held.grant.granted_at, ends, bound)), why, ledger.now)


def _longer(since: datetime, ends: datetime, bound: Bound | None) -> Iterator[Longer]:
    """The usual spans that are within bounds, and the bound itself, to the minute."""
    untils = [ends + more for more in STEPS]
    if bound is not None:
        most = since + (bound.until - since) // _MINUTE * _MINUTE
        untils = [*(until for until in untils if until < most), *([most] if most > ends else [])]
    for until in untils:
        yield Longer((until - ends).total_seconds(), until, (until - since).total_seconds())


def _seen(ledger: Ledger, lease_id: str, *, person: str | None, sees_all: bool) -> Lease:
    lease = ledger.tx.lease(lease_id)
    if lease is None or not (sees_all or lease.holder.user_name == person):
        raise refusal(ProblemCode.NOT_FOUND, "There is no such lease, or it is not yours.")
    return lease


def lease_view(ledger: Ledger, lease_id: str, *, person: str | None, sees_all: bool) -> LeaseView:
    """One lease, for its holder and for admins. Somebody else's is not there."""
    lease = _seen(ledger, lease_id, person=person, sees_all=sees_all)
    return LeaseView(lease_document(ledger, lease), tuple(ledger.tx.audit(lease_id)), ledger.now)
