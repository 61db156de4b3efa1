"""Proposals to cut GPUs anew, on the tables."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store.reshapes import Reshapes
from mig_spawner.allocator.store.session import Session
from mig_spawner.domain.reshape import Reshape
from mig_spawner.errors import InvalidTransition

KEPT: Final = 200
"""Proposals that have ended; older ones are dropped. What was done stays in the audit."""

_ADD: Final = insert(t.reshape)
_MOVE: Final = update(t.reshape).where(
    t.reshape.c.reshape_id == bindparam("of_reshape"), t.reshape.c.state == bindparam("from_state")
)
_ONE: Final = select(t.reshape.c.document).where(t.reshape.c.reshape_id == bindparam("reshape_id"))
_OPEN: Final = select(t.reshape.c.document).where(t.reshape.c.open).order_by(t.reshape.c.number)
_OPEN_OF: Final = _OPEN.where(t.reshape.c.node == bindparam("node"))
_ENDED: Final = (
    select(t.reshape.c.document)
    .where(t.reshape.c.open.is_(False))
    .order_by(t.reshape.c.number.desc())
    .limit(bindparam("most", type_=t.reshape.c.number.type))
)
_OLD: Final = (
    select(t.reshape.c.number)
    .where(t.reshape.c.open.is_(False))
    .order_by(t.reshape.c.number.desc())
    .limit(1)
    .offset(KEPT)
)
_DROP: Final = delete(t.reshape).where(t.reshape.c.open.is_(False), t.reshape.c.number <= bindparam("up_to"))
_reshape: Final = TypeAdapter(Reshape)


class SQLReshapes(Reshapes):
    """A part of `SQLTransaction`."""

    session: Session
    now: datetime

    @abstractmethod
    def note_node(self, name: str, *, who: str, before: str, after: str, why: str) -> None:
        """See `History`."""

    def add_reshape(self, reshape: Reshape, *, who: str) -> bool:
        try:
            with self.session.begin_nested():
                self.session.execute(_ADD, {**_row(reshape), "reshape_id": reshape.reshape_id})
        except IntegrityError:
            return False
        self._note(reshape, who, "", f"for {reshape.asked}")
        old = self.session.execute(_OLD).scalar_one_or_none()
        if old is not None:
            self.session.execute(_DROP, {"up_to": old})
        return True

    def move_reshape(self, before: Reshape, after: Reshape, *, who: str) -> None:
        key = {"of_reshape": before.reshape_id, "from_state": before.state.value}
        if self.session.execute(_MOVE, _row(after) | key).rowcount != 1:
            raise InvalidTransition(f"The proposal {before.reshape_id} is not {before.state} any more.")
        if after.state is not before.state:
            self._note(after, who, before.state.value, after.reason)

    def _note(self, reshape: Reshape, who: str, before: str, why: str) -> None:
        cut = f"{' '.join(map(str, reshape.remove)) or 'nothing'} -> {' '.join(map(str, reshape.make)) or 'nothing'}"
        what = f"cut {reshape.gpu_uuid} anew, {cut} ({reshape.reshape_id})"
        said = f"{what}: {why}" if why else what
        self.note_node(reshape.node, who=who, before=before, after=reshape.state.value, why=said)

    def reshape(self, reshape_id: str) -> Reshape | None:
        text = self.session.execute(_ONE, {"reshape_id": reshape_id}).scalar_one_or_none()
        return None if text is None else _reshape.validate_json(text)

    def open_reshapes(self, *, node: str | None = None) -> list[Reshape]:
        rows = self.session.execute(_OPEN) if node is None else self.session.execute(_OPEN_OF, {"node": node})
        return [_reshape.validate_json(text) for text in rows.scalars()]

    def ended_reshapes(self, most: int) -> list[Reshape]:
        return [_reshape.validate_json(text) for text in self.session.execute(_ENDED, {"most": most}).scalars()]


def _row(reshape: Reshape) -> dict[str, Any]:
    return {
        "gpu_uuid": reshape.gpu_uuid,
        "node": reshape.node,
        "state": reshape.state.value,
        "open": not reshape.closed,
        "document": _reshape.dump_json(reshape).decode(),
    }
