"""The moves of a transaction as events, written in the same transaction: whatever is on disk will be told, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from mig_spawner.allocator.document import lease_document
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.store.base import Store
from mig_spawner.allocator.store.codec import grant_of
from mig_spawner.allocator.store.outbox import News
from mig_spawner.domain.lease import Active, Closed, Granted, Lease, Queued, Ready, Releasing
from mig_spawner.wire.event import EventKind

WARN_SHARE = 4
"""A short lease is warned of in its last quarter, however early warnings are wanted."""


def announce(ledger: Ledger) -> None:
    """Write the events of what this transaction has moved. Its last step."""
    news = [_news(ledger, kind, after) for before, after in ledger.steps for kind in _kinds(before, after)]
    if news:
        ledger.tx.add_events(news)


def warn(ledger: Ledger) -> None:
    """Write an event for each lease whose time is over soon, once for each end that was agreed."""
    due = [(lease, ends) for lease, ends in _ending(ledger) if _warned_from(ledger, lease, ends) <= ledger.now < ends]
    told = ledger.tx.warned() if due else frozenset()
    news = [
        _news(ledger, EventKind.EXPIRING, lease, warns_of=ends)
        for lease, ends in due
        if (lease.lease_id, ends) not in told
    ]
    if news:
        ledger.tx.add_events(news)


def forget(store: Store, kept: timedelta) -> int:
    """Drop what is older than events are kept; how many events those were."""
    with store.writing() as tx:
        return tx.drop_events(tx.now - kept)


def _kinds(before: Lease, after: Lease) -> Iterator[EventKind]:
    held, holds = grant_of(before), grant_of(after)
    if held is not None and holds is not None and held.placement != holds.placement:
        yield EventKind.MOVED
    match after:
        case Queued():
            if isinstance(before, Granted):
                yield EventKind.QUEUED
        case Granted():
            if not isinstance(before, Granted):
                yield EventKind.GRANTED
        case Ready():
            if not isinstance(before, Ready):
                yield EventKind.READY
        case Active():
            if not isinstance(before, Active):
                yield EventKind.ACTIVE
        case Releasing():
            if not isinstance(before, Releasing):
                yield EventKind.ENDED
        case Closed():
            if not isinstance(before, Releasing):
                yield EventKind.ENDED
            if after.grant is not None:
                yield EventKind.CLOSED


def _news(ledger: Ledger, kind: EventKind, lease: Lease, *, warns_of: datetime | None = None) -> News:
    document = lease_document(ledger, lease)
    return News(kind, lease.lease_id, document.model_dump_json(), warns_of)


def _ending(ledger: Ledger) -> Iterator[tuple[Granted | Ready | Active, datetime]]:
    for lease in ledger.holding.values():
        if isinstance(lease, (Granted, Ready, Active)) and lease.grant.expires_at is not None:
            yield lease, lease.grant.expires_at


def _warned_from(ledger: Ledger, lease: Granted | Ready | Active, ends: datetime) -> datetime:
    early = ledger.setting.expiry_warning
    return ends - min(early, (ends - lease.grant.granted_at) / WARN_SHARE) if early else ends + timedelta.resolution
