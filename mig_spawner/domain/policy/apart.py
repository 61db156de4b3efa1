"""Groups that never share a GPU: a rule of some sites, for fear of side channels or of a neighbour's load."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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


Rules = Collection[Apart]


def forbidding(rules: Rules, mine: Collection[str], theirs: Collection[str]) -> str | None:
    """The group because of which these two may not share a GPU, by any of these rules; None if they may."""
    found = (rule.forbids(mine, theirs) for rule in rules)
    return next((group for group in found if group is not None), None)


def concerned(rules: Rules, mine: Collection[str]) -> frozenset[str]:
    """The groups of somebody that any of these rules speaks of; empty for whoever may be anybody's neighbour."""
    return frozenset(group for rule in rules for group in rule.groups.intersection(mine))
