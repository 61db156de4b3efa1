"""What is held, added up for quotas: by person, by group and for all. And how large what was asked for is at least."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mig_spawner.domain.fleet import Decision, GPUState, profiles_for
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.quota import Quota, Scope, Size, Spell, Standing, Unit, tightest
from mig_spawner.domain.request import MIB_PER_GIB, Request, WholeRequest
from mig_spawner.domain.rule import Person

Subject = tuple[Scope, str]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one lease holds. `ends`: when at the latest; None for no limit."""

    size: Size
    share: float
    begins: datetime
    ends: datetime | None

    def until(self, now: datetime) -> Spell:
        return Spell(self.begins, now, self.share)


class Held:
    """The pieces of every subject. Those of all people are many, so what was added up once is kept up to date."""

    def __init__(self) -> None:
        self._pieces: dict[Subject, dict[Piece, int]] = defaultdict(dict)
        self._totals: dict[Subject, dict[Unit, float]] = {}

    def add(self, person: Person, piece: Piece) -> None:
        """Somebody has got something."""
        for subject in subjects(person):
            alike = self._pieces[subject]
            alike[piece] = alike.get(piece, 0) + 1
            self._count(subject, piece, 1)

    def drop(self, person: Person, piece: Piece) -> None:
        """Somebody has given it back."""
        for subject in subjects(person):
            alike = self._pieces[subject]
            alike[piece] -= 1
            self._count(subject, piece, -1)
            if not alike[piece]:
                del alike[piece]
            if not alike:
                del self._pieces[subject]
                self._totals.pop(subject, None)

    def _count(self, subject: Subject, piece: Piece, sign: int) -> None:
        totals = self._totals.get(subject, {})
        for unit in totals:
            totals[unit] += sign * piece.size.in_unit(unit)

    def pieces(self, subject: Subject) -> list[Piece]:
        return [piece for piece, count in self._pieces.get(subject, {}).items() for _ in range(count)]

    def total(self, subject: Subject, unit: Unit) -> float:
        """How much of a unit is held at once; nothing of GPU-hours."""
        totals = self._totals.setdefault(subject, {})
        if unit not in totals:
            totals[unit] = sum(piece.size.in_unit(unit) for piece in self.pieces(subject))
        return totals[unit]

    def hours(self, subject: Subject, since: datetime, now: datetime) -> float:
        """GPU-hours of what is held, since a moment."""
        return sum(piece.until(now).hours_since(since) for piece in self.pieces(subject))


def against(standing: Callable[[Quota, Size], Standing], quotas: Iterable[Quota], size: Size) -> Standing | None:
    """The tightest quota that has no room for so much more; None if all have."""
    standings = [standing(quota, size) for quota in quotas]
    return tightest(one for one in standings if not one.has_room(size))


def subjects(person: Person) -> list[Subject]:
    """With whom what this person has is counted."""
    groups = [(Scope.GROUP, group) for group in person.groups]
    return [(Scope.PERSON, person.name), *groups, (Scope.HUB, "")]


def subject_of(quota: Quota) -> Subject:
    """Whose use a quota counts."""
    return (quota.rule.scope, quota.subject)


def memory_gb(profile: ProfileName | None, memory_mib: int) -> float:
    """As in the profile's name; of a whole GPU its GiB, rounded."""
    return float(round(memory_mib / MIB_PER_GIB)) if profile is None else float(profile.memory_gb)


def decided_size(decision: Decision) -> Size:
    """How large what would be granted is."""
    name = None if decision.profile is None else decision.profile.name
    total = decision.gpu.multiprocessors
    return Size(memory_gb(name, decision.memory_mib), decision.multiprocessors / total if total else decision.share)


def least_size(request: Request, fleet: Sequence[GPUState]) -> Size:
    """The least that can serve a request on these GPUs, in each unit; nothing where no GPU can."""
    if isinstance(request, WholeRequest):
        wholes = [state.gpu.memory_mib for state in fleet if state.can_be_whole]
        return Size(memory_gb(None, min(wholes, default=0)), 1.0)
    sizes = list(_sizes(profiles_for(request, fleet), fleet))
    return Size(
        min((size.memory_gb for size in sizes), default=0.0), min((size.compute_share for size in sizes), default=0.0)
    )


def _sizes(names: Sequence[ProfileName], fleet: Sequence[GPUState]) -> Iterable[Size]:
    wanted = set(names)
    for state in fleet:
        total = state.gpu.multiprocessors
        for profile in (*(device.profile for device in state.devices), *state.gpu.profiles):
            if profile.name in wanted and total:
                yield Size(float(profile.name.memory_gb), profile.multiprocessors / total)
