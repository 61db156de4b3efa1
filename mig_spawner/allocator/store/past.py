"""Looking back on the tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, Table, bindparam, func, insert, or_, select

from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store.codec import from_row
from mig_spawner.allocator.store.history import Change, History, Mark
from mig_spawner.allocator.store.session import Session
from mig_spawner.domain.lease import Closed

_ALL: Final = (1 << 31) - 1
"""Before this number is everything."""
_ADD_ACT: Final = insert(t.act)
_NUMBER_OF: Final = select(t.lease.c.number).where(t.lease.c.lease_id == bindparam("of_lease"))
_PEAKS: Final = (
    select(t.lease.c.profile, func.max(t.lease.c.peak_memory_mib).label("most"))
    .where(t.lease.c.user_name == bindparam("of_user"), t.lease.c.peak_memory_mib.is_not(None))
    .group_by(t.lease.c.profile)
    .order_by(t.lease.c.profile)
)
_CLOSED: Final = select(t.lease).where(t.lease.c.state == "closed").order_by(t.lease.c.number.desc())


class SQLHistory(History):
    """The port's `History` on a session."""

    session: Session
    news: bool
    now: datetime

    def changes(self, *, text: str = "", before: Mark | None = None, limit: int) -> tuple[list[Change], Mark | None]:
        audit, act = before if before is not None else (None, None)
        found = [_of_lease(row) for row in self.session.execute(_newest(t.audit, "lease_id", text, audit, limit + 1))]
        found += [_of_node(row) for row in self.session.execute(_newest(t.act, "node", text, act, limit + 1))]
        found.sort(key=lambda change: (change.at, change.node != "", change.number), reverse=True)
        shown = found[:limit]
        if len(found) <= limit:
            return shown, None
        return shown, (_least(shown, audit, nodes=False), _least(shown, act, nodes=True))

    def closed_leases(self, *, user_name: str | None = None, before: str | None = None, limit: int) -> list[Closed]:
        query = _CLOSED.limit(limit)
        if user_name is not None:
            query = query.where(t.lease.c.user_name == user_name)
        if before is not None:
            number = self.session.execute(_NUMBER_OF, {"of_lease": before}).scalar_one_or_none()
            query = query.where(t.lease.c.number < (0 if number is None else number))
        leases = [from_row(row) for row in self.session.execute(query).mappings()]
        return [lease for lease in leases if isinstance(lease, Closed)]

    def peaks(self, user_name: str) -> dict[str | None, int]:
        return {row.profile: row.most for row in self.session.execute(_PEAKS, {"of_user": user_name})}

    def note_node(self, name: str, *, who: str, before: str, after: str, why: str) -> None:
        self.news = True
        row = {"node": name, "at": self.now, "who": who, "before": before, "after": after, "why": why}
        self.session.execute(_ADD_ACT, row)


def _newest(table: Table, name: str, text: str, before: int | None, limit: int) -> Select[Any]:
    query = select(table).order_by(table.c.number.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.number < before)
    return query.where(_says(table, name, text)) if text else query


def _says(table: Table, name: str, text: str) -> ColumnElement[bool]:
    columns = (table.c[name], table.c.who, table.c.after, table.c.why)
    return or_(*(func.lower(column).contains(text.lower(), autoescape=True) for column in columns))


def _least(shown: list[Change], before: int | None, *, nodes: bool) -> int:
    """Before which number the next look begins: the last one shown, else where this one began."""
    numbers = [change.number for change in shown if bool(change.node) is nodes]
    return min(numbers) if numbers else (_ALL if before is None else before)


def _of_lease(row: Row[Any]) -> Change:
    return Change(row.number, row.at, row.who, row.lease_id, "", row.before, row.after, row.why)


def _of_node(row: Row[Any]) -> Change:
    return Change(row.number, row.at, row.who, "", row.node, row.before, row.after, row.why)
