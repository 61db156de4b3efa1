"""Who may have something on the menu, and when: rules by user, group, date and hours of the week. Pure; time is an argument."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final

from mig_spawner.errors import InvalidRequest

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MIN: Final = 24 * 60
_HOURS: Final = re.compile(
    r"(?P<first>[A-Z][a-z]{2})(?:-(?P<last>[A-Z][a-z]{2}))?"
    r"(?:\s+(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<until>\d{1,2}:\d{2}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who asks.

    Attributes:
        name: their name at the hub.
        groups: their groups at the hub.
    """

    name: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Hours:
    """Some hours of some days of the week, `Mon-Fri 08:00-18:00`. Hours that end before they begin go on into the next day.

    Attributes:
        days: 0 is Monday.
        begin, end: minutes since midnight; a whole day is 0 to 1440.
    """

    days: frozenset[int]
    begin: int
    end: int
    text: str

    @classmethod
    def parse(cls, text: str) -> Hours:
        """Read `Mon`, `Sat-Sun`, `Fri 18:00-24:00`.

        Raises:
            InvalidRequest: with a sentence that says how to write it.
        """
        match = _HOURS.fullmatch(text.strip())
        try:
            if match is None:
                raise ValueError(text)
            first = DAYS.index(match["first"])
            last = first if match["last"] is None else DAYS.index(match["last"])
            begin = 0 if match["from"] is None else _minutes(match["from"])
            end = _DAY_MIN if match["until"] is None else _minutes(match["until"])
        except ValueError as error:
            raise InvalidRequest(
                f"{text[:60]!r} are no hours; write days and hours such as Mon-Fri 08:00-18:00, or Sat-Sun."
            ) from error
        if begin == end:
            raise InvalidRequest(f"{text[:60]!r} ends when it begins; write the days alone for the whole day.")
        days = frozenset((first + i) % 7 for i in range((last - first) % 7 + 1))
        return cls(days, begin, end, " ".join(text.split()))

    def contain(self, now: datetime) -> bool:
        """Whether a moment is within, as the clock of its zone shows it."""
        minute, today = now.hour * 60 + now.minute, now.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= minute < self.end
        yesterday = (today - 1) % 7
        return (today in self.days and minute >= self.begin) or (yesterday in self.days and minute < self.end)


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    total = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or total > _DAY_MIN:
        raise ValueError(text)
    return total


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may have it, and when. What is not said allows everybody, or always.

    Attributes:
        users, groups: whoever is named or in one of the groups; empty both for everybody.
        begins, ends: the first and the last day.
        hours: within one of these; empty for all hours.
    """

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    begins: date | None = None
    ends: date | None = None
    hours: tuple[Hours, ...] = ()

    def is_for(self, person: Person) -> bool:
        """Whether the rule names this person, a group of theirs, or nobody at all."""
        return not (self.users or self.groups) or person.name in self.users or not self.groups.isdisjoint(person.groups)

    def refusal(self, person: Person, now: datetime) -> str:
        """Why this person may not have it now, a sentence that begins with "It"; empty if they may.

        Args:
            now: in the zone in which days and hours are meant.
        """
        if not self.is_for(person):
            return self._for_whom()
        if self.begins is not None and now.date() < self.begins:
            return f"It can be had from {self.begins.isoformat()} on."
        if self.ends is not None and now.date() > self.ends:
            return f"It could be had until {self.ends.isoformat()}."
        if self.hours and not any(hours.contain(now) for hours in self.hours):
            zone = f" ({now.tzname()})" if now.tzname() else ""
            return f"It can be had {listed([h.text for h in self.hours], 'and')}{zone} only."
        return ""

    def _for_whom(self) -> str:
        if not self.groups:
            return "It is for people whom an admin has named."
        word = "group" if len(self.groups) == 1 else "groups"
        others = ", and for people whom an admin has named" if self.users else ""
        return f"It is for the {word} {listed(sorted(self.groups), 'and')}{others}."


def listed(words: Sequence[str], conjunction: str) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def end_of(day: date, now: datetime) -> datetime:
    """The moment after a day's last, in the zone of `now`."""
    return datetime.combine(day + timedelta(days=1), time(), now.tzinfo)
