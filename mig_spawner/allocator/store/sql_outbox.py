"""Events on the tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, insert, select

from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store.outbox import EventRecord, News, Outbox
from mig_spawner.allocator.store.sql_post import BEFORE, DROP_OLD, PUT_ON_ITS_WAY
from mig_spawner.wire.event import EventKind

_ADD: Final = insert(t.event)
_EVENTS: Final = (
    select(t.event)
    .where(t.event.c.number > bindparam("after"))
    .order_by(t.event.c.number)
    .limit(bindparam("most", type_=t.event.c.number.type))
)
_RANGE: Final = select(func.min(t.event.c.number), func.max(t.event.c.number))
_DROPPED: Final = select(t.meta.c.events_dropped)
_SET_DROPPED: Final = t.meta.update().values(events_dropped=bindparam("number"))
_LAST_OLD: Final = select(func.max(t.event.c.number)).where(t.event.c.at < bindparam("before"))
_DROP: Final = delete(t.event).where(t.event.c.number <= bindparam("number"))
_WARNED: Final = select(t.event.c.lease_id, t.event.c.warns_of).where(t.event.c.warns_of > bindparam("now"))


class SQLOutbox(Outbox):
    """A part of `SQLTransaction`."""

    now: datetime

    @abstractmethod
    def _execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a statement in the transaction."""

    @abstractmethod
    def _note_change(self) -> None:
        """Those who watch must be told."""

    def add_events(self, news: Sequence[News]) -> None:
        rows = [
            {"at": self.now, "kind": n.kind.value, "lease_id": n.lease_id, "lease": n.lease, "warns_of": n.warns_of}
            for n in news
        ]
        before, webhooks = self._execute(BEFORE).one()
        self._execute(_ADD, rows)
        if webhooks:
            # Whoever writes is alone, so what has come since is ours.
            self._execute(PUT_ON_ITS_WAY, {"before": before or 0, "now": self.now})
        self._note_change()

    def events(self, *, after: int, limit: int) -> list[EventRecord]:
        rows = self._execute(_EVENTS, {"after": after, "most": limit})
        return [EventRecord(r.number, r.at, EventKind(r.kind), r.lease_id, r.lease) for r in rows]

    def event_range(self) -> tuple[int, int]:
        dropped = int(self._execute(_DROPPED).scalar_one())
        _, last = self._execute(_RANGE).one()
        return dropped, max(dropped, last or 0)

    def warned(self) -> frozenset[tuple[str, datetime]]:
        return frozenset((r.lease_id, r.warns_of) for r in self._execute(_WARNED, {"now": self.now}))

    def drop_events(self, before: datetime) -> int:
        last = self._execute(_LAST_OLD, {"before": before}).scalar_one_or_none()
        if last is None:
            return 0
        self._execute(DROP_OLD, {"number": last})
        self._execute(_SET_DROPPED, {"number": last})
        return int(self._execute(_DROP, {"number": last}).rowcount)
