"""Plans on the tables."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, insert, select

from mig_spawner.allocator.foresight.codec import plan_from_text, plan_to_text
from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store.change import Slot
from mig_spawner.allocator.store.codec import from_row
from mig_spawner.allocator.store.plans import PlanRecord, Plans
from mig_spawner.domain.lease import Lease
from mig_spawner.domain.policy import Plan

KEPT: Final = 10
"""Plans; older ones are dropped."""

_ARRIVALS: Final = select(func.coalesce(func.max(t.lease.c.number), 0))
_NEWEST: Final = select(t.lease).order_by(t.lease.c.number.desc()).limit(bindparam("most", type_=t.lease.c.number.type))
_NEWEST_PLAN: Final = (
    select(t.plan.c.number, t.plan.c.made_at, t.plan.c.arrivals).order_by(t.plan.c.number.desc()).limit(1)
)
_DOCUMENT: Final = select(t.plan.c.document).where(t.plan.c.number == bindparam("of"))
_ADD: Final = insert(t.plan)
_DROP: Final = delete(t.plan).where(t.plan.c.number <= bindparam("up_to"))


class SQLPlans(Plans):
    """A part of `SQLTransaction`."""

    now: datetime
    slot: Slot

    @abstractmethod
    def _execute(self, statement: Any, parameters: Any = None) -> Any:
        """Run a statement in the transaction."""

    def arrivals(self) -> int:
        return int(self._execute(_ARRIVALS).scalar_one())

    def newest(self, most: int) -> list[Lease]:
        return [from_row(row) for row in self._execute(_NEWEST, {"most": most}).mappings()][::-1]

    def plan(self) -> PlanRecord | None:
        row = self._execute(_NEWEST_PLAN).one_or_none()
        if row is None:
            return None
        known = self.slot.plan
        if known is None or (known.number, known.made_at, known.arrivals) != tuple(row):
            # It is large, and another one seldom.
            document = self._execute(_DOCUMENT, {"of": row.number}).scalar_one()
            known = self.slot.plan = _plan(row.number, row.made_at, row.arrivals, document)
        return known

    def put_plan(self, number: int, arrivals: int, plan: Plan) -> bool:
        known = self._execute(_NEWEST_PLAN).one_or_none()
        if number != 1 + (0 if known is None else known.number):
            return False
        row = {"number": number, "made_at": self.now, "arrivals": arrivals, "document": plan_to_text(plan)}
        self._execute(_ADD, row)
        self._execute(_DROP, {"up_to": number - KEPT})
        return True


@lru_cache(maxsize=16)
def _plan(number: int, made_at: datetime, arrivals: int, text: str) -> PlanRecord:
    """A stored plan. Whoever ranks by it knows it by its identity."""
    return PlanRecord(number, made_at, arrivals, plan_from_text(text))
