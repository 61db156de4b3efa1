"""Webhooks and deliveries on the tables."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, bindparam, delete, func, insert, literal, select, update

from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store.outbox import EventRecord
from mig_spawner.allocator.store.post import Delivery, Post, WebhookRecord
from mig_spawner.wire.event import EventKind
from mig_spawner.wire.webhook import DeliveryState

_PENDING: Final = DeliveryState.PENDING.value

_d, _e, _w = t.delivery.c, t.event.c, t.webhook.c
BEFORE: Final = select(
    select(func.max(_e.number)).scalar_subquery(), select(func.count()).select_from(t.webhook).scalar_subquery()
)
"""The last event there is, and how many webhooks."""
PUT_ON_ITS_WAY: Final = insert(t.delivery).from_select(
    ["webhook_id", "event_number", "state", "attempts", "next_at", "error"],
    select(
        _w.webhook_id, _e.number, literal(_PENDING), literal(0), bindparam("now", type_=_d.next_at.type), literal("")
    )
    .select_from(t.event.join(t.webhook, _w.kinds.like("% " + _e.kind + " %")))
    .where(_e.number > bindparam("before")),
)
DROP_OLD: Final = delete(t.delivery).where(_d.event_number <= bindparam("number"))

_ADD: Final = insert(t.webhook)
_WEBHOOKS: Final = select(t.webhook).order_by(_w.created_at, _w.webhook_id)
_DROP_ITS: Final = delete(t.delivery).where(_d.webhook_id == bindparam("webhook_id"))
_DROP: Final = delete(t.webhook).where(_w.webhook_id == bindparam("webhook_id"))
_COUNTS: Final = select(_d.webhook_id, _d.state, func.count().label("count")).group_by(_d.webhook_id, _d.state)
_due = (_d.state == _PENDING) & (_d.next_at <= bindparam("now"))
_DUE: Final = select(_d.number).where(_due).limit(1)
_deliveries = select(t.delivery, _e.at, _e.kind, _e.lease_id, _e.lease, _e.number.label("event")).select_from(
    t.delivery.join(t.event, _e.number == _d.event_number)
)
_CLAIM: Final = _deliveries.where(_due).order_by(_d.next_at, _d.number).limit(bindparam("most", type_=_d.number.type))
_HOLD: Final = update(t.delivery).where(_d.number == bindparam("of")).values(next_at=bindparam("until"))
_FINISH: Final = update(t.delivery).where(
    _d.number == bindparam("of"), _d.state == _PENDING, _d.attempts == bindparam("attempts_before")
)
_REDELIVER: Final = update(t.delivery).where(_d.number == bindparam("of"), _d.webhook_id == bindparam("of_webhook"))
_ONE: Final = _deliveries.where(_d.number == bindparam("of"))


class SQLPost(Post):
    """A part of `SQLTransaction`."""

    now: datetime

    @abstractmethod
    def _execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a statement in the transaction."""

    def add_webhook(self, webhook: WebhookRecord) -> None:
        row = {
            "webhook_id": webhook.webhook_id,
            "url": webhook.url,
            "kinds": f" {' '.join(webhook.kinds)} ",
            "description": webhook.description,
            "created_at": webhook.created_at,
            "created_by": webhook.created_by,
        }
        self._execute(_ADD, row)

    def webhooks(self) -> list[WebhookRecord]:
        return [
            WebhookRecord(
                r.webhook_id,
                r.url,
                tuple(EventKind(kind) for kind in r.kinds.split()),
                r.description,
                r.created_at,
                r.created_by,
            )
            for r in self._execute(_WEBHOOKS)
        ]

    def drop_webhook(self, webhook_id: str) -> bool:
        self._execute(_DROP_ITS, {"webhook_id": webhook_id})
        return bool(self._execute(_DROP, {"webhook_id": webhook_id}).rowcount)

    def delivery_counts(self) -> dict[tuple[str, DeliveryState], int]:
        return {(r.webhook_id, DeliveryState(r.state)): r[2] for r in self._execute(_COUNTS)}

    def is_delivery_due(self) -> bool:
        return self._execute(_DUE, {"now": self.now}).first() is not None

    def claim_deliveries(self, limit: int, until: datetime) -> list[Delivery]:
        claimed = [_delivery(row) for row in self._execute(_CLAIM, {"now": self.now, "most": limit})]
        if claimed:
            self._execute(_HOLD, [{"of": one.number, "until": until} for one in claimed])
        return claimed

    def finish_delivery(
        self, claimed: Delivery, state: DeliveryState, *, next_at: datetime, status: int | None, error: str
    ) -> None:
        change = {
            "state": state.value,
            "attempts": claimed.attempts + 1,
            "next_at": next_at,
            "status": status,
            "error": error,
        }
        self._execute(_FINISH.values(change), {"of": claimed.number, "attempts_before": claimed.attempts})

    def deliveries(
        self, webhook_id: str, *, state: DeliveryState | None, before: int | None, limit: int
    ) -> list[Delivery]:
        query = _deliveries.where(_d.webhook_id == webhook_id).order_by(_d.number.desc()).limit(limit)
        if state is not None:
            query = query.where(_d.state == state.value)
        if before is not None:
            query = query.where(_d.number < before)
        return [_delivery(row) for row in self._execute(query)]

    def redeliver(self, webhook_id: str, number: int) -> Delivery | None:
        change = {"state": _PENDING, "attempts": 0, "next_at": self.now, "status": None, "error": ""}
        key = {"of": number, "of_webhook": webhook_id}
        if self._execute(_REDELIVER.values(change), key).rowcount == 0:
            return None
        return _delivery(self._execute(_ONE, {"of": number}).one())


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        number=row.number,
        webhook_id=row.webhook_id,
        event=EventRecord(row.event, row.at, EventKind(row.kind), row.lease_id, row.lease),
        state=DeliveryState(row.state),
        attempts=row.attempts,
        next_at=row.next_at,
        status=row.status,
        error=row.error,
    )
