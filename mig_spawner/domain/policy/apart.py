"""Groups that never share a GPU: a rule of some sites, for fear of side channels or of a neighbour's load."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mig_spawner.domain.fleet import GPUState
from mig_spawner.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Apart:
    """These groups are kept apart from each other: who is in one of them gets no slice of a GPU on which somebody is who is in another.

    Who is in none of them may be anybody's neighbour. Who is in two may be the neighbour of none but those in the same two.
    """

    groups: frozenset[str]

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            raise InvalidRequest("To keep groups apart takes at least two of them.")

    def forbids(self, mine: Collection[str], theirs: Collection[str]) -> str | None:
        """The group because of which these two may not share a GPU; None if they may."""
        here, there = self.groups & set(mine), self.groups & set(theirs)
        return min(there ^ here) if here and there and here != there else None


def keep_apart(
    fleet: Sequence[GPUState],
    rules: Collection[Apart],
    mine: Collection[str],
    occupants: Mapping[str, Collection[frozenset[str]]],
) -> Sequence[GPUState]:
    """The fleet as somebody with these groups may use it: GPUs that a rule forbids are unavailable, and say why.

    Args:
        occupants: the groups of each holder who has something on a GPU, by `gpu_uuid`.
    """
    if not any(rule.groups.intersection(mine) for rule in rules):
        return fleet
    return [_seen(state, rules, mine, occupants.get(state.gpu.gpu_uuid, ())) for state in fleet]


def _seen(
    state: GPUState, rules: Collection[Apart], mine: Collection[str], occupants: Collection[frozenset[str]]
) -> GPUState:
    if state.unavailable is not None:
        return state
    found = (rule.forbids(mine, theirs) for rule in rules for theirs in occupants)
    group = next((group for group in found if group is not None), None)
    return (
        state if group is None else replace(state, unavailable=f"group {group} is kept apart on {state.gpu.gpu_uuid}")
    )
