"""What every part of a transaction on the tables does: run statements, and note the keys of what it writes."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from typing import Any, Final

from sqlalchemy import RowMapping

from mig_spawner.allocator.store import statement as s
from mig_spawner.allocator.store.change import DROPPED_EVERY, KEPT, Changed, Slot
from mig_spawner.allocator.store.session import Session

_AT_ONCE: Final = 500
"""So many keys are looked for with one statement."""


class SQLChanges:
    """The base of `SQLTransaction`.

    Attributes:
        news: whether those who watch must be told.
        written: the keys of what it has written.
    """

    def __init__(self, session: Session, slot: Slot) -> None:
        self.session = self._connection = session
        self.slot = slot
        self.news = False
        self.written = Changed()

    def changed(self) -> Changed | None:
        slot = self.slot
        everything = False
        if not slot.checked:
            everything = not self._look_for_others(slot)
            slot.checked = True
        stale, slot.stale = slot.stale, Changed()
        return None if everything or slot.view is None else stale

    def _look_for_others(self, slot: Slot) -> bool:
        """Put what others have written among what is stale. False when it cannot be told."""
        if slot.mark is not None:
            rows = self._connection.execute(s.CHANGES_SINCE, {"since": slot.mark[0]}).all()
            if rows and (rows[0].number, rows[0].stamp) == slot.mark:
                for row in rows[1:]:
                    slot.stale.add(Changed.from_text(row.keys))
                slot.mark = rows[-1].number, rows[-1].stamp
                return True
        newest = self._connection.execute(s.NEWEST_CHANGE).one_or_none()
        slot.mark = None if newest is None else (newest.number, newest.stamp)
        return False

    def finish(self, *, news: bool, written: Changed) -> None:
        """Before the commit: tell those who watch that there is news, and those who keep a view what was written."""
        if news:
            self._connection.execute(s.NEXT_REVISION)
        if not written:
            return
        stamp = secrets.token_hex(8)
        number = int(self._connection.execute(s.ADD_CHANGE, {"stamp": stamp, "keys": written.to_text()}).scalar_one())
        if number % DROPPED_EVERY == 0:
            self._connection.execute(s.DROP_CHANGES, {"up_to": number - KEPT})
        if self.slot.checked:
            # Nobody else can have written since: what is in the view or stale there is all there is.
            self.slot.mark = number, stamp

    def _wrote(self, kind: str, *keys: str) -> None:
        for changed in (self.written, self.slot.stale):
            getattr(changed, kind).update(keys)

    def _those(self, of_all: Any, of_some: Any, keys: Collection[str] | None) -> Iterable[RowMapping]:
        """The rows of all, or of these keys: a database takes only so many at once."""
        if keys is None:
            yield from self._connection.execute(of_all).mappings()
            return
        listed = sorted(keys)
        for some in (listed[i : i + _AT_ONCE] for i in range(0, len(listed), _AT_ONCE)):
            yield from self._connection.execute(of_some, {"keys": some}).mappings()
