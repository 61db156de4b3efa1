"""What an admin may write for one value of the menu, and how it is read."""

from __future__ import annotations

import re
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from mig_spawner.domain.rule import Hours
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.base import PLAIN

_BYTES: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)(?:i?B?|i)")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TEXT_OR_NUMBER: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[KMGT]?"}]
}


def parse_bytes(value: object) -> object:
    """Read `16G` as KubeSpawner does: K, M, G and T are units of 1024; a plain number is bytes. Anything else passes unread."""
    if isinstance(value, str) and (match := _BYTES.fullmatch(value.strip())) is not None:
        return int(float(match["number"]) * _UNITS[match["unit"]])
    return value


def number(value: object) -> object:
    """A whole number as one with a fraction; anything else passes unread."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _date(value: object) -> object:
    """YAML reads 2026-03-01 as a date, JSON as a text; anything else is none."""
    if isinstance(value, str) and _DATE.fullmatch(value):
        return date.fromisoformat(value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise InvalidRequest(f"{str(value)[:60]!r} is no day; write one such as 2026-03-01")
    return value


def _hours(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _an_hours(value: object) -> object:
    return Hours.parse(value) if isinstance(value, str) else value


def _names(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _schema(name: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": name, **more})


Bytes = Annotated[
    int, BeforeValidator(parse_bytes), Field(strict=True, gt=0, lt=1 << 53), WithJsonSchema(_TEXT_OR_NUMBER)
]
Cores = Annotated[
    float,
    BeforeValidator(number),
    Field(strict=True, gt=0, le=4096, allow_inf_nan=False),
    _schema("number", exclusiveMinimum=0, maximum=4096),
]
Gigabytes = Annotated[
    float,
    BeforeValidator(number),
    Field(strict=True, gt=0, le=10_000, allow_inf_nan=False),
    _schema("number", exclusiveMinimum=0, maximum=10_000),
]
Duration = Annotated[
    float,
    BeforeValidator(number),
    Field(strict=True, gt=0, le=366 * 86400, allow_inf_nan=False),
    _schema("number", exclusiveMinimum=0, maximum=366 * 86400),
]
Price = Annotated[
    float,
    BeforeValidator(number),
    Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False),
    _schema("number", minimum=0, maximum=1_000_000),
]
Flag = Annotated[bool, Field(strict=True)]
Day = Annotated[date, BeforeValidator(_date), _schema("string", format="date", pattern=r"^\d{4}-\d{2}-\d{2}$")]
Names = Annotated[
    tuple[Annotated[str, Field(strict=True, min_length=1, max_length=255, pattern=f"^{PLAIN}$")], ...],
    Field(max_length=1000),
    BeforeValidator(_names),
]


class Framework(StrEnum):
    """A framework that an entry has hints for."""

    PYTORCH = "pytorch"
    JAX = "jax"
    TENSORFLOW = "tensorflow"


Frameworks = Annotated[tuple[Framework, ...], Field(max_length=len(Framework)), BeforeValidator(_names)]
WeekHours = Annotated[
    tuple[
        Annotated[
            Hours, BeforeValidator(_an_hours), PlainSerializer(lambda h: h.text, return_type=str), _schema("string")
        ],
        ...,
    ],
    Field(max_length=50),
    BeforeValidator(_names),
    BeforeValidator(_hours),
]
