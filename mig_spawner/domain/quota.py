"""Quotas: how much somebody may have, alone, as a group, or all together. Pure: rules, people and use in, limits and verdicts out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Final

from mig_spawner.domain.rule import Person

EPSILON: Final = 1e-6
"""Shares of GPUs are fractions: three thirds are one."""
_PRECISION: Final = timedelta(minutes=1)


class Scope(StrEnum):
    """Whose use is counted together."""

    PERSON = "person"
    """Each person's, over all of their servers."""
    GROUP = "group"
    """That of all members of a group. Who is in several groups counts in each."""
    HUB = "hub"
    """Everybody's, of the whole installation."""


class Unit(StrEnum):
    """What is counted."""

    SLICES = "slices"
    """Leases at once, whatever their size. A whole GPU is one."""
    MEMORY_GB = "memory_gb"
    """GB of GPU memory at once, as in the names of profiles."""
    COMPUTE_SHARE = "compute_share"
    """Parts of GPUs at once, by their multiprocessors. A whole GPU is 1."""
    GPU_HOURS = "gpu_hours"
    """Hours within the last so much time, each counted as the part of the GPU's memory slices that was held."""


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """What an admin wrote.

    Attributes:
        users, groups: for whom; empty both for everybody, or for each group.
        window: of GPU-hours; None for what is counted at once.
        contact: whom to ask for more.
    """

    name: str
    scope: Scope
    unit: Unit
    limit: float
    window: timedelta | None = None
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    contact: str = ""

    def __str__(self) -> str:
        whom = ", ".join(sorted(self.users | self.groups))
        within = "" if self.window is None else f" within {self.window.total_seconds() / 3600:g} hours"
        return f"{self.limit:g} {self.unit.replace('_', ' ')}{within} per {self.scope}" + (f" ({whom})" if whom else "")


@dataclass(frozen=True, slots=True)
class Quota:
    """A rule as it holds for one subject: a person, a group, or everybody (the empty name)."""

    rule: QuotaRule
    subject: str

    def counts(self, person: Person) -> bool:
        """Whether what this person has counts here."""
        match self.rule.scope:
            case Scope.PERSON:
                return person.name == self.subject
            case Scope.GROUP:
                return self.subject in person.groups
            case Scope.HUB:
                return True


@dataclass(frozen=True, slots=True)
class Size:
    """How large a slice is, in the units of quotas."""

    memory_gb: float
    compute_share: float

    def in_unit(self, unit: Unit) -> float:
        """Zero for GPU-hours: they come with time."""
        match unit:
            case Unit.SLICES:
                return 1
            case Unit.MEMORY_GB:
                return self.memory_gb
            case Unit.COMPUTE_SHARE:
                return self.compute_share
            case Unit.GPU_HOURS:
                return 0


@dataclass(frozen=True, slots=True)
class Spell:
    """Some time in which a part of a GPU was held.

    Attributes:
        share: part of the GPU's memory slices, 0 to 1.
    """

    begins: datetime
    ends: datetime
    share: float

    def hours_since(self, moment: datetime) -> float:
        """GPU-hours of it after a moment."""
        seconds = (self.ends - max(self.begins, moment)).total_seconds()
        return max(seconds, 0) * self.share / 3600


def quotas_of(rules: Sequence[QuotaRule], person: Person) -> list[Quota]:
    """The quotas that hold for a person.

    Of the rules for single persons, one unit at a time, only those hold that are closest to this person: those that name them, else
    those that name a group of theirs, else those for everybody; of several, the most generous of each window. So to be in one
    more group never takes anything away. Of the rules for a group those that name it go before those for each group.
    Everything for the whole hub holds.
    """
    own = [Quota(rule, person.name) for rule in _for_person(rules, person)]
    of_groups = [Quota(rule, group) for group in sorted(person.groups) for rule in _for_group(rules, group)]
    return [*own, *of_groups, *(Quota(rule, "") for rule in rules if rule.scope is Scope.HUB)]


def _for_person(rules: Sequence[QuotaRule], person: Person) -> list[QuotaRule]:
    closest: list[QuotaRule] = []
    for unit in Unit:
        ours = [r for r in rules if r.scope is Scope.PERSON and r.unit is unit]
        near = (
            [r for r in ours if person.name in r.users]
            or [r for r in ours if not r.groups.isdisjoint(person.groups)]
            or [r for r in ours if not (r.users or r.groups)]
        )
        by_window = sorted(near, key=lambda r: r.window or timedelta())
        closest += [max(same, key=lambda r: r.limit) for _, same in groupby(by_window, key=lambda r: r.window)]
    return closest


def _for_group(rules: Sequence[QuotaRule], group: str) -> list[QuotaRule]:
    holding: list[QuotaRule] = []
    for unit in Unit:
        ours = [r for r in rules if r.scope is Scope.GROUP and r.unit is unit]
        holding += [r for r in ours if group in r.groups] or [r for r in ours if not r.groups]
    return holding


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of a quota is used.

    Attributes:
        resets_at: when there is some left again at the latest, if nobody takes more; None where that cannot be told, or is now.
    """

    quota: Quota
    used: float
    resets_at: datetime | None = None

    @property
    def left(self) -> float:
        return max(self.quota.rule.limit - self.used, 0.0)

    def has_room(self, size: Size) -> bool:
        """Whether so much more is within it."""
        if self.quota.rule.unit is Unit.GPU_HOURS:
            return self.used < self.quota.rule.limit - EPSILON
        return self.used + size.in_unit(self.quota.rule.unit) <= self.quota.rule.limit + EPSILON


def tightest(standings: Iterable[Standing]) -> Standing | None:
    """The one that is used up most; among equals, the one that stays so longest."""

    def tight(standing: Standing) -> tuple[float, bool, float]:
        limit, until = standing.quota.rule.limit, standing.resets_at
        return (
            standing.used / limit if limit else float("inf"),
            until is None,
            0 if until is None else until.timestamp(),
        )

    return max(standings, key=tight, default=None)


def room_at(limit: float, needed: float, held: Iterable[tuple[datetime | None, float]]) -> datetime | None:
    """When enough of what is held at once has ended for `needed` more; None when that cannot be told.

    Args:
        held: for each lease when it ends at the latest, and how much it is.
    """
    leases = list(held)
    excess = sum(size for _, size in leases) + needed - limit
    for ends, size in sorted((end, size) for end, size in leases if end is not None):
        excess -= size
        if excess <= EPSILON:
            return ends
    return None


def hours_left_at(limit: float, window: timedelta, spells: Sequence[Spell], now: datetime) -> datetime | None:
    """When so much of the use has left the window that some is left, if nothing more were used; None if it is so now, or never will be."""

    def used(at: datetime) -> float:
        return sum(spell.hours_since(at - window) for spell in spells)

    if limit <= 0 or used(now) < limit:
        return None
    early, late = now, now + window
    while late - early > _PRECISION:
        middle = early + (late - early) / 2
        early, late = (early, middle) if used(middle) < limit else (middle, late)
    return late
