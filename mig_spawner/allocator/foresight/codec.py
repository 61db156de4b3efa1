"""Plans and the work on them as JSON: in the ledger, and to and from the process that makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mig_spawner.domain.policy import Demand
from mig_spawner.domain.policy.priced.chart import Key, Shape
from mig_spawner.domain.policy.priced.plan import Job, KindPlan, Plan
from mig_spawner.domain.profile import ProfileName

Kinds = Mapping[str, KindPlan]


def plan_to_text(plan: Plan) -> str:
    """A plan as it stands in the ledger."""
    demand = [[str(name), parts] for name, parts in plan.demand.shares]
    return json.dumps({"demand": demand, "kinds": _kinds_to_json(plan.kinds)}, separators=(",", ":"))


def plan_from_text(text: str) -> Plan:
    """The plan that `plan_to_text` wrote."""
    document = json.loads(text)
    demand = Demand(tuple((ProfileName.parse(name), int(parts)) for name, parts in document["demand"]))
    return Plan(demand, _kinds_from_json(document["kinds"]))


def kinds_to_text(kinds: Kinds) -> str:
    """What the process that plans answers."""
    return json.dumps(_kinds_to_json(kinds), separators=(",", ":"))


def kinds_from_text(text: str) -> Kinds:
    """What `kinds_to_text` wrote."""
    return _kinds_from_json(json.loads(text))


def jobs_to_text(jobs: Mapping[str, Job], candidates: tuple[str, ...]) -> str:
    """What the process that plans is asked."""
    return json.dumps({"candidates": candidates, "jobs": jobs})


def jobs_from_text(text: str) -> tuple[dict[str, Job], tuple[str, ...]]:
    """What `jobs_to_text` wrote."""
    document = json.loads(text)
    jobs = {
        kind: Job(grid, tuple(Shape(size, tuple(starts), share) for size, starts, share in shapes), gpus)
        for kind, (grid, shapes, gpus) in document["jobs"].items()
    }
    return jobs, tuple(document["candidates"])


def _kinds_to_json(kinds: Kinds) -> dict[str, Any]:
    return {
        kind: {
            "winner": plan.winner,
            "accepted": {name: round(part, 6) for name, part in plan.accepted.items()},
            "worth": {f"{mask}:{heads}": value for (mask, heads), value in plan.worth.items()},
        }
        for kind, plan in kinds.items()
    }


def _kinds_from_json(document: Mapping[str, Any]) -> dict[str, KindPlan]:
    return {
        kind: KindPlan(plan["winner"], plan["accepted"], {_key(text): int(v) for text, v in plan["worth"].items()})
        for kind, plan in document.items()
    }


def _key(text: str) -> Key:
    mask, heads = text.split(":")
    return int(mask), int(heads)
