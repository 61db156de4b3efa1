"""Quotas in a run: the same rules as the allocator's, asked of what runs and of what has run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.held import Held, Piece, Subject, against, decided_size, least_size, subject_of, subjects
from mig_spawner.domain.quota import Quota, QuotaRule, Size, Spell, Standing, quotas_of
from mig_spawner.domain.request import Request
from mig_spawner.domain.rule import Person
from mig_spawner.planning.trace import Arrival

BEGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Second 0 of a run."""
FAR: Final = 1e10
"""Seconds after which a moment is as good as never: some three hundred years."""


def moment(seconds: float) -> datetime:
    """A second of a run as a time."""
    return BEGIN + timedelta(seconds=min(seconds, FAR))


class Quotas:
    """Who has how much, in one run."""

    def __init__(self, rules: Sequence[QuotaRule], fleet: Sequence[GPUState]) -> None:
        self._rules = rules
        self._fleet = fleet
        self._held = Held()
        self._past: dict[Subject, list[Spell]] = defaultdict(list)
        self._running: dict[int, tuple[Person, Piece]] = {}
        self._least: dict[Request, Size] = {}

    def allows(self, number: int, arrival: Arrival, now: float) -> bool:
        """Whether somebody may have the least that would serve him, beside what is held."""
        if not self._rules:
            return True
        if arrival.request not in self._least:
            self._least[arrival.request] = least_size(arrival.request, self._fleet)
        quotas = quotas_of(self._rules, _person(number, arrival))
        at = moment(now)
        return against(lambda quota, _: self._standing(quota, at), quotas, self._least[arrival.request]) is None

    def start(self, number: int, arrival: Arrival, decision: Decision, now: float) -> None:
        """Somebody is served."""
        if self._rules:
            piece = Piece(decided_size(decision), decision.share, moment(now), None)
            self._running[number] = person, _ = _person(number, arrival), piece
            self._held.add(person, piece)

    def stop(self, number: int, now: float) -> None:
        """Somebody has given it back."""
        if self._rules:
            person, piece = self._running.pop(number)
            self._held.drop(person, piece)
            if any(rule.window is not None for rule in self._rules):
                for subject in subjects(person):
                    self._past[subject].append(piece.until(moment(now)))

    def _standing(self, quota: Quota, now: datetime) -> Standing:
        subject, window = subject_of(quota), quota.rule.window
        if window is None:
            return Standing(quota, self._held.total(subject, quota.rule.unit))
        since = now - window
        past = sum(spell.hours_since(since) for spell in self._past[subject])
        return Standing(quota, past + self._held.hours(subject, since, now))


def _person(number: int, arrival: Arrival) -> Person:
    # Who has no name is somebody else each time.
    return Person(arrival.holder or f"{number}", arrival.groups)
