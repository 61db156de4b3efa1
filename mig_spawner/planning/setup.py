"""What is compared: a policy, a layout and a rule for who waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy import POLICIES, Demand, Ranking, make_plan, planned
from mig_spawner.domain.policy.demand import HALF_LIFE
from mig_spawner.domain.policy.priced.rehearsal import Traffic
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.fleet import DYNAMIC, plain
from mig_spawner.planning.rule import REFUSE, RULES
from mig_spawner.planning.scenario import profile_of
from mig_spawner.planning.trace import Trace

AUTO: Final = "auto"
REPLAN: Final = 1000
"""Arrivals between two plans where the demand is estimated along the way."""


class Knows(StrEnum):
    """What a policy knows of the demand."""

    DEMAND = "demand"
    """All: the mix of the moment where a scenario has one, else what the arrivals ask for."""
    ESTIMATE = "estimate"
    """What has been asked for so far, as the allocator does."""
    NOTHING = "nothing"
    """Nothing, from beginning to end."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One of those that are compared.

    Attributes:
        layout: `dynamic`, or a layout by name.
        rule: for who waits, by a name of `RULES`.
    """

    policy: str = AUTO
    layout: str = DYNAMIC
    rule: str = REFUSE
    knows: Knows = Knows.DEMAND

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise InvalidRequest(f"{self.policy!r} is no policy. Choose one of: {', '.join(POLICIES)}.")
        if self.rule not in RULES:
            raise InvalidRequest(f"{self.rule!r} is no rule for who waits. Choose one of: {', '.join(RULES)}.")

    def __str__(self) -> str:
        parts = [self.policy if self.layout == DYNAMIC else self.layout]
        parts += [_KNOWING[self.knows]] if self.knows in _KNOWING else []
        parts += [self.rule] if self.rule != REFUSE else []
        return ", ".join(parts)


_KNOWING: Final = {Knows.ESTIMATE: "by estimate", Knows.NOTHING: "told nothing"}


def ranking_for(policy: str, gpus: Sequence[GPU], demand: Demand, *, rehearsed: int = Traffic(1).arrivals) -> Ranking:
    """A policy that knows the demand. `auto` makes its plan: some ten seconds for each kind of GPU, unless it was made before."""
    if policy == AUTO:
        return planned(make_plan(gpus, demand, arrivals=rehearsed))
    return POLICIES[policy].ranking(demand)


def replanner(
    policy: str, gpus: Sequence[GPU], trace: Trace, *, every: int, rehearsed: int
) -> Callable[[int], Ranking | None]:
    """What the allocator does in the background: now and then estimate the demand from what has been asked for, and plan anew."""
    kinds = list({id(gpu.profiles): gpu for gpu in gpus}.values())
    offered = sorted({p.name for gpu in kinds for p in plain(gpu)})
    names = [profile_of(arrival.request, kinds) for arrival in trace]

    def replan(number: int) -> Ranking | None:
        if number % every:
            return None
        seen = [name for name in names[max(0, number - int(8 * HALF_LIFE)) : number] if name is not None]
        return ranking_for(policy, gpus, Demand.estimate(seen, offered), rehearsed=rehearsed)

    return replan


def follower(
    policy: str, gpus: Sequence[GPU], trace: Trace, moves: Sequence[tuple[float, Demand]], *, rehearsed: int
) -> Callable[[int], Ranking | None]:
    """Who is told at once when the mix changes: from each of these seconds on it is another."""
    numbers = {bisect_left(trace, at, key=lambda arrival: arrival.at): demand for at, demand in moves}

    def follow(number: int) -> Ranking | None:
        demand = numbers.get(number)
        return None if demand is None else ranking_for(policy, gpus, demand, rehearsed=rehearsed)

    return follow
