"""Placing by the plan in the ledger."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from mig_spawner.allocator.store.plans import PlanRecord
from mig_spawner.domain.policy import POLICIES, Plan, Ranking, planned
from mig_spawner.domain.policy.priced.plan import CANDIDATES

WORTHS: Final = {"auto": CANDIDATES, "priced": ("priced",)}
"""The policies that go by worths which are worked out ahead, and among which candidates they choose."""


@lru_cache(maxsize=16)
def ranking_of(policy: str, record: PlanRecord | None) -> Ranking:
    """The ranking of a policy under a plan; the very same one for the same record.

    While there is no plan, nothing is known of the demand.
    """
    if policy in WORTHS:
        return planned(Plan() if record is None else record.plan)
    return POLICIES[policy].ranking() if record is None else POLICIES[policy].ranking(record.plan.demand)
