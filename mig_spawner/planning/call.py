"""What people will want, in the words of an admin: a stream of requests, or a class that begins all at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MOST: Final = 100_000
"""People of a class, and instances of a profile; more is a mistake."""


@dataclass(frozen=True, slots=True)
class Stream:
    """People who come one by one.

    Attributes:
        per_hour: how many, on average.
        hours: how long they stay, on average.
    """

    profile: ProfileName
    per_hour: float
    hours: float

    @property
    def at_once(self) -> float:
        """How many are there at once, on average, if nobody is refused."""
        return self.per_hour * self.hours

    @classmethod
    def parse(cls, text: str) -> Stream:
        """Read `1g.10gb = 20/h x 2h`.

        Raises:
            InvalidRequest: with a sentence that says how it is written.
        """
        match = _STREAM.fullmatch(text.strip())
        if match is None:
            raise InvalidRequest(f"A demand is written like '1g.10gb = 20/h x 2h', not {text[:80]!r}.")
        stream = cls(ProfileName.parse(match[1]), float(match[2]), float(match[3]))
        if stream.at_once > MOST:
            raise InvalidRequest(f"{text[:80]!r} would be {stream.at_once:.0f} at once; is that what you mean?")
        return stream

    def __str__(self) -> str:
        return f"{self.profile} = {self.per_hour:g}/h x {self.hours:g}h"


@dataclass(frozen=True, slots=True)
class Lesson:
    """People who come all at once, every week, and all must find a place.

    Attributes:
        day: 0 is Monday.
        begin, end: minutes after midnight.
    """

    people: int
    profile: ProfileName
    day: int
    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Lesson:
        """Read `30 people, 1g.10gb, Tuesday 10-12` or `… Tue 10:15-11:45`.

        Raises:
            InvalidRequest: with a sentence that says how it is written.
        """
        match = _LESSON.fullmatch(text.strip().lower().replace("\u2013", "-"))
        day = None if match is None else next((n for n, d in enumerate(DAYS) if d.startswith(match[3])), None)
        if match is None or day is None:
            raise InvalidRequest(f"A class is written like '30 people, 1g.10gb, Tuesday 10-12', not {text[:80]!r}.")
        begin, end = _minutes(match[4]), _minutes(match[5])
        lesson = cls(int(match[1]), ProfileName.parse(match[2]), day, begin, end)
        if not begin < end <= 24 * 60 or not 1 <= lesson.people <= MOST:
            raise InvalidRequest(f"In {text[:80]!r} the class has no people, or ends before it begins.")
        return lesson

    def __str__(self) -> str:
        return f"{self.people} people, {self.profile}, {DAYS[self.day].title()} {clock(self.begin)}-{clock(self.end)}"


_STREAM: Final = re.compile(
    r"([^\s=:]+)\s*[=:]\s*(\d{1,6}(?:\.\d{1,6})?)\s*/\s*h\s*[x*\u00d7]\s*(\d{1,6}(?:\.\d{1,6})?)\s*h"
)
_TIME: Final = r"\d{1,2}(?::\d\d)?"
_LESSON: Final = re.compile(
    rf"(\d{{1,6}})(?:\s*people)?\s*,\s*([^\s,]+)\s*,\s*([a-z]{{2,9}})\s+({_TIME})\s*-\s*({_TIME})"
)


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes or 0)


def clock(minutes: int) -> str:
    """`10:05`, of minutes after midnight."""
    return f"{minutes // 60}:{minutes % 60:02}"
