"""What is held now, added up for people, groups and the hub. Built once in a transaction, since every decision asks it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from mig_spawner.allocator.store.base import Holding
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.lease import Grant
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.quota import Scope, Size, Spell, Unit
from mig_spawner.domain.request import MIB_PER_GIB
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
    """The pieces of every subject.

    Args:
        gpus: those that are known now, by `gpu_uuid`.
    """

    def __init__(self, holding: Iterable[Holding], gpus: Mapping[str, GPU]) -> None:
        self._pieces: dict[Subject, list[Piece]] = defaultdict(list)
        self._totals: dict[tuple[Subject, Unit], float] = {}
        for lease in holding:
            grant = lease.grant
            piece = Piece(
                granted_size(grant, gpus.get(grant.placement.gpu_uuid)), grant.share, grant.granted_at, grant.expires_at
            )
            for subject in subjects(lease.person):
                self._pieces[subject].append(piece)

    def pieces(self, subject: Subject) -> list[Piece]:
        return self._pieces.get(subject, [])

    def total(self, subject: Subject, unit: Unit) -> float:
        """How much of a unit is held at once; nothing of GPU-hours."""
        key = (subject, unit)
        if key not in self._totals:
            self._totals[key] = sum(piece.size.in_unit(unit) for piece in self.pieces(subject))
        return self._totals[key]


def subjects(person: Person) -> list[Subject]:
    """With whom what this person has is counted."""
    groups = [(Scope.GROUP, group) for group in person.groups]
    return [(Scope.PERSON, person.name), *groups, (Scope.HUB, "")]


def granted_size(grant: Grant, gpu: GPU | None) -> Size:
    """How large what was granted is."""
    # Of a GPU that is gone the part of its multiprocessors is not known any more, that of its memory slices is.
    share = grant.multiprocessors / gpu.multiprocessors if gpu is not None and gpu.multiprocessors else grant.share
    return Size(memory_gb(grant.profile, grant.memory_mib), share)


def memory_gb(profile: ProfileName | None, memory_mib: int) -> float:
    """As in the profile's name; of a whole GPU its GiB, rounded."""
    return float(round(memory_mib / MIB_PER_GIB)) if profile is None else float(profile.memory_gb)
