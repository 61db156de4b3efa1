"""What holders and admins may do with the queue: one transaction per use case."""

from __future__ import annotations

from mig_spawner.allocator.document import lease_document
from mig_spawner.allocator.paging import Place, page, place, queue_cursor
from mig_spawner.allocator.queue.change import change
from mig_spawner.allocator.queue.explanation import explain
from mig_spawner.allocator.queue.view import Viewer, entry, queue_of
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.service import Desk, Seen, claim, seen, settle, stored
from mig_spawner.domain.lease import Closed, Releasing
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.queue import ExplainDocument, LeaseChange, QueueDocument


class QueueService:
    """Look at the queue, change what one waits for, come back for it. Errors as in `LeaseService`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def queue(self, viewer: Viewer, *, after: Place | None = None, limit: int | None = None) -> QueueDocument:
        """Those who wait, next first: those behind a place in line, at most so many."""
        with self._desk.reading() as ledger:
            queue = queue_of(ledger)
            shown, more = page(queue.leases, place, after=after, limit=limit)
            return QueueDocument(
                as_of=ledger.now,
                length=len(queue.leases),
                entries=tuple(entry(ledger, queue, queue.position(lease.lease_id), viewer) for lease in shown),
                next=queue_cursor(shown[-1]) if more else None,
            )

    def explain(self, lease_id: str, viewer: Viewer) -> ExplainDocument:
        """Why a lease is where it is, or why it waits."""
        with self._desk.reading() as ledger:
            lease = stored(ledger, lease_id)
            return explain(ledger, lease, lease_document(ledger, lease), viewer)

    def change(self, lease_id: str, wanted: LeaseChange, *, who: str) -> Seen:
        """Change what a lease waits for; it keeps its time of arrival. It may be granted at once."""
        with self._desk.writing(who) as ledger:
            lease = change(ledger, stored(ledger, lease_id), wanted)
            settle(ledger)
            return seen(ledger, stored(ledger, lease.lease_id))

    def claim(self, lease_id: str, *, who: str) -> Seen:
        """Its holder is back, and stands by from now on. Doing it twice does no harm."""
        with self._desk.writing(who) as ledger:
            lease = stored(ledger, lease_id)
            if isinstance(lease, (Releasing, Closed)):
                detail = lease_document(ledger, lease).detail
                raise refusal(ProblemCode.CONFLICT, f"This lease has ended. {detail}")
            return seen(ledger, claim(ledger, lease))
