"""Which of the legal places a lease gets.

A policy ranks; it never decides what is legal. So no policy can propose an illegal place, and none refuses while a place
is legal. Every decision follows from request, fleet and demand alone, so two replicas that see the same ledger decide alike.

`choose` decides on a fleet as it stands, `Index` on one that is kept; both go by the same tables. See `docs/placement.md`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mig_spawner.domain.policy.apart import Apart, Rules, concerned, forbidding
from mig_spawner.domain.policy.base import Policy, Rank, Ranking
from mig_spawner.domain.policy.choice import choose
from mig_spawner.domain.policy.demand import UNKNOWN, Demand
from mig_spawner.domain.policy.explain import Candidate, Explanation, explain
from mig_spawner.domain.policy.fit import best_fit, driver_order, first_fit, worst_fit
from mig_spawner.domain.policy.fragmentation import expected_fragmentation, min_fragmentation
from mig_spawner.domain.policy.index import Index
from mig_spawner.domain.policy.priced.plan import Plan, make_plan
from mig_spawner.domain.policy.priced.ranking import planned, priced
from mig_spawner.domain.policy.share import share_weighted
from mig_spawner.domain.policy.stranded import Stranded, stranded, stranded_together

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "UNKNOWN",
    "Apart",
    "Candidate",
    "Demand",
    "Explanation",
    "Index",
    "Plan",
    "Policy",
    "Rank",
    "Ranking",
    "Rules",
    "Stranded",
    "best_fit",
    "choose",
    "concerned",
    "driver_order",
    "expected_fragmentation",
    "explain",
    "first_fit",
    "forbidding",
    "make_plan",
    "min_fragmentation",
    "planned",
    "priced",
    "share_weighted",
    "stranded",
    "stranded_together",
    "worst_fit",
]

DEFAULT_POLICY: Final = "auto"

_ALL: Final = (
    Policy(
        "auto",
        "Plans ahead: of several worths of a GPU's state, the one that has served what people ask for best (ours).",
        lambda demand: planned(Plan(demand)),
        heeds_demand=True,
    ),
    Policy("best-fit", "The fullest GPU with room, where it spoils least for large requests.", lambda _: best_fit),
    Policy("driver-order", "The first GPU with room, where the driver would cut.", lambda _: driver_order),
    Policy(
        "expected-fragmentation",
        "Leaves the fewest free slices that the next request is expected not to fit (FGD).",
        expected_fragmentation,
        heeds_demand=True,
    ),
    Policy("first-fit", "The first GPU with room, at its first free slice.", lambda _: first_fit),
    Policy("min-fragmentation", "Blocks the fewest places for whatever might come (MFI).", min_fragmentation),
    Policy(
        "priced",
        "Spends least of what a GPU's state is worth under prices for what people ask for (ours).",
        priced,
        heeds_demand=True,
    ),
    Policy(
        "share-weighted",
        "Spends least of what people are likely to ask for next (SW).",
        share_weighted,
        heeds_demand=True,
    ),
    Policy(
        "worst-fit", "The emptiest GPU: spreads the load, and soon has no room for large requests.", lambda _: worst_fit
    ),
)

POLICIES: Final[Mapping[str, Policy]] = MappingProxyType({policy.name: policy for policy in _ALL})
"""Every policy by name. `POLICIES[name].ranking(demand)` is what `choose` and `Index` take."""
