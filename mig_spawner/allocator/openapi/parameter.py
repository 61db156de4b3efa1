"""Query parameters: one description that handlers parse with and that the OpenAPI document shows, so that the two cannot differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Generic, TypeVar

from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.base import PLAIN
from mig_spawner.wire.event import AVAILABILITY, EventKind
from mig_spawner.wire.lease import MAX_GROUPS, LeaseState
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.quota import UsageKey
from mig_spawner.wire.webhook import DeliveryState

V = TypeVar("V")

MAX_WAIT_S: Final = 60.0
MAX_PAGE: Final = 1000
MAX_WINDOW_S: Final = 3660 * 86400
PAGE: Final = 500
_MAX_GENERATION: Final = 10**18 - 1
_MAX_NAME: Final = 255
_PLAIN: Final = f"^{PLAIN}$"
_POSITION: Final = rf"^({'|'.join(LeaseState)}):[0-9]{{1,9}}$"
_DAY: Final = r"\d{4}-\d{2}-\d{2}"
_NUMBER: Final = r"^[0-9]{1,18}$"
_KIND: Final = "|".join([*EventKind, AVAILABILITY])
_QUEUE_CURSOR: Final = r"^-?[0-9]{1,3}\.[0-9]{1,17}\.[0-9a-f]{1,32}$"
_LEASE_ID: Final = r"^[0-9a-f]{1,32}$"
_LEASE_CURSOR: Final = r"^[0-9]{1,17}\.[0-9a-f]{1,32}$"


@dataclass(frozen=True, eq=False)
class Parameter(Generic[V]):
    """One value of a query.

    Attributes:
        about: what it is for, a sentence.
        schema: the JSON schema of what `read` accepts.
        read: the value of a text; a ValueError refuses it.
        says: what is accepted, in words, for whoever sent something else.
    """

    name: str
    about: str
    schema: Mapping[str, Any]
    read: Callable[[str], V]
    says: str
    required: bool = False

    def parse(self, texts: Sequence[str]) -> V:
        """The value, or a refusal that begins with the name of the parameter."""
        if len(texts) > 1:
            raise refusal(ProblemCode.INVALID, f"{self.name}: give it once.")
        try:
            return self.read(texts[0])
        except ValueError as error:
            raise refusal(ProblemCode.INVALID, f"{self.name}: {self.says}.") from error

    def described(self) -> dict[str, Any]:
        """As OpenAPI writes it."""
        return {
            "name": self.name,
            "in": "query",
            "required": self.required,
            "description": self.about,
            "schema": dict(self.schema),
        }


class Repeated(Parameter[tuple[str, ...]]):
    """A value that may come several times, which `read` takes one by one."""

    def parse(self, texts: Sequence[str]) -> tuple[str, ...]:
        if len(texts) > MAX_GROUPS:
            raise refusal(ProblemCode.INVALID, f"{self.name}: give it at most {MAX_GROUPS} times.")
        try:
            return tuple(text for one in texts for text in self.read(one))
        except ValueError as error:
            raise refusal(ProblemCode.INVALID, f"{self.name}: {self.says}.") from error

    def described(self) -> dict[str, Any]:
        array = {"type": "array", "items": dict(self.schema), "maxItems": MAX_GROUPS}
        return {**super().described(), "schema": array}


def _seconds(text: str) -> float:
    if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text, re.ASCII | re.IGNORECASE) is None:
        raise ValueError(text)
    seconds = float(text)
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError(text)
    return min(seconds, MAX_WAIT_S)


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return read


def _text(pattern: str, least: int = 0) -> Callable[[str], str]:
    # JSON schema's `$` is the end of the text, Python's also before a last line break: hence fullmatch, without anchors.
    compiled = re.compile(pattern.removeprefix("^").removesuffix("$"))

    def read(text: str) -> str:
        if not least <= len(text) <= _MAX_NAME or compiled.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return read


def _lease_cursor(text: str) -> tuple[int, str]:
    microseconds, _, lease_id = _text(_LEASE_CURSOR)(text).partition(".")
    return int(microseconds), lease_id


def _day(text: str) -> date:
    if re.fullmatch(_DAY, text, re.ASCII) is None:
        raise ValueError(text)
    return date.fromisoformat(text)


def _queue_cursor(text: str) -> tuple[int, int, str]:
    priority, microseconds, lease_id = _text(_QUEUE_CURSOR)(text).split(".")
    return -int(priority), int(microseconds), lease_id


def _name(name: str, about: str, least: int, *, required: bool = False) -> Parameter[str]:
    return Parameter(
        name,
        about,
        {"type": "string", "minLength": least, "maxLength": _MAX_NAME, "pattern": _PLAIN},
        _text(_PLAIN, least),
        f"{least} to {_MAX_NAME} characters, none of them a control character",
        required,
    )


WAIT: Final = Parameter(
    "wait",
    f"How long to hold the answer back until there is something new, seconds. More than {MAX_WAIT_S:g} is taken for that.",
    {"type": "number", "minimum": 0, "default": 0},
    _seconds,
    "a number of seconds, 0 or more",
)
KNOWN_POSITION: Final = Parameter(
    "known",
    "State and position that the caller has seen, `queued:3`, or `ready:0` outside the queue: the answer waits until they differ.",
    {"type": "string", "pattern": _POSITION},
    _text(_POSITION),
    "state and position of a lease, such as queued:3 or ready:0",
)
KNOWN_GENERATION: Final = Parameter(
    "known",
    "The generation that the agent has: the answer waits until it differs.",
    {"type": "integer", "minimum": 0, "maximum": _MAX_GENERATION, "default": 0},
    _whole(0, _MAX_GENERATION),
    "the generation that the agent has, a whole number",
)
USER_ID: Final = _name("user_id", "Only the holder with this id.", 0)
SERVER_NAME: Final = _name("server_name", "Only servers with this name; empty for the default server.", 0)
HOLDER_USER_ID: Final = _name("user_id", "The id of the holder.", 1, required=True)
HOLDER_SERVER_NAME: Final = _name("server_name", "The holder's server; empty for the default server.", 0)
LIMIT: Final = Parameter(
    "limit",
    "How many to answer with at most.",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": PAGE},
    _whole(1, MAX_PAGE),
    f"a whole number from 1 to {MAX_PAGE}",
)
WITHOUT: Final = Parameter(
    "without",
    "The lease of one who waits: what is free as if it did not, which is what its holder could have instead.",
    {"type": "string", "pattern": _LEASE_ID},
    _text(_LEASE_ID),
    "the lease_id of a lease",
)
LEASE_CURSOR: Final = Parameter(
    "cursor",
    "Where to go on: `next` of the answer before.",
    {"type": "string", "pattern": _LEASE_CURSOR},
    _lease_cursor,
    "what `next` of the answer before said",
)
KINDS: Final = Parameter(
    "kinds",
    "Only events of these kinds, with commas between them.",
    {"type": "string", "pattern": rf"^({_KIND})(,({_KIND}))*$"},
    lambda text: frozenset(_text(rf"({_KIND})(,({_KIND}))*")(text).split(",")),
    f"some of {', '.join(_KIND.split('|'))}, with commas between them",
)
DELIVERY_STATE: Final = Parameter(
    "state",
    "Only deliveries in this state; `dead` for those that were given up.",
    {"enum": [state.value for state in DeliveryState]},
    DeliveryState,
    f"one of {', '.join(DeliveryState)}",
)
DELIVERY_CURSOR: Final = Parameter(
    "cursor",
    "Where to go on: `next` of the answer before.",
    {"type": "string", "pattern": _NUMBER},
    lambda text: int(_text(_NUMBER)(text)),
    "what `next` of the answer before said",
)
QUEUE_CURSOR: Final = Parameter(
    "cursor",
    "Where to go on: `next` of the answer before.",
    {"type": "string", "pattern": _QUEUE_CURSOR},
    _queue_cursor,
    "what `next` of the answer before said",
)
NODE_CURSOR: Final = _name("cursor", "Where to go on: `next` of the answer before.", 1)
VIEW_USER: Final = _name("user", "See it as this user, by name; for those who see everything.", 1)
VIEW_GROUP: Final = Repeated(
    "group",
    "A group of that user; give it once for each.",
    {"type": "string", "minLength": 1, "maxLength": _MAX_NAME, "pattern": _PLAIN},
    lambda text: (_text(_PLAIN, 1)(text),),
    f"1 to {_MAX_NAME} characters, none of them a control character",
)
VIEW_DATE: Final = Parameter(
    "date",
    "See it as it will be at noon of this day.",
    {"type": "string", "format": "date"},
    _day,
    "a day such as 2026-03-01",
)
USAGE_BY: Final = Parameter(
    "by",
    "What use is added up by.",
    {"type": "string", "enum": [key.value for key in UsageKey], "default": UsageKey.PERSON.value},
    UsageKey,
    f"one of {', '.join(UsageKey)}",
)
USAGE_WINDOW: Final = Parameter(
    "window",
    "Use within the last so many seconds.",
    {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW_S, "default": 30 * 86400},
    _whole(1, MAX_WINDOW_S),
    f"a whole number of seconds, from 1 to {MAX_WINDOW_S}",
)
