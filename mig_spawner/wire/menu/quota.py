"""One quota as an admin writes it. Each limit of it becomes a rule of the domain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from mig_spawner.domain.quota import QuotaRule, Scope, Unit
from mig_spawner.wire.base import Document
from mig_spawner.wire.menu.value import Duration, Names, number

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _span(value: object) -> object:
    """Read `7d` and `12h`; a plain number is seconds."""
    if isinstance(value, str) and (match := _SPAN.fullmatch(value.strip())) is not None:
        return float(match[1]) * _SECONDS[match[2]]
    return value


Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Amount = Annotated[
    float,
    BeforeValidator(number),
    Field(strict=True, ge=0, le=1_000_000_000, allow_inf_nan=False),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1_000_000_000}),
]
Span = Annotated[
    Duration,
    BeforeValidator(_span),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*[smhd]$"}]}
    ),
]
PLAIN_LINE: Final[dict[str, Any]] = {"strict": True, "max_length": 200, "pattern": r"^[^\x00-\x1f\x7f]*$"}


class QuotaEntry(Document):
    """How much may be had.

    Attributes:
        name: how it is called in refusals; made of the rest where it is left out.
        per: whose use is counted together: each `person`'s, that of a `group`'s members, or the whole `hub`'s.
        groups: per person, for whoever is in one of them; per group, for these groups. Without, for everybody, or each group.
        users: per person, for these.
        slices: how many leases at once.
        memory_gb: how much GPU memory at once, in GB as in the names of profiles.
        compute_share: how many GPUs' multiprocessors at once; a whole GPU is 1.
        gpu_hours: how much GPU time within the last `window` (seconds, or as `12h` or `7d`), counted by the part of the GPU that was held.
        contact: whom to ask for more; without it, the menu's.
    """

    per: Scope
    name: Annotated[str, Field(**PLAIN_LINE)] = ""
    groups: Names = ()
    users: Names = ()
    slices: Count | None = None
    memory_gb: Amount | None = None
    compute_share: Amount | None = None
    gpu_hours: Amount | None = None
    window: Span | None = None
    contact: Annotated[str, Field(**PLAIN_LINE)] = ""

    @model_validator(mode="after")
    def _consistent(self) -> QuotaEntry:
        if all(getattr(self, unit) is None for unit in Unit):
            raise ValueError(f"it limits nothing; write one of {', '.join(Unit)}")
        if (self.gpu_hours is None) != (self.window is None):
            raise ValueError("`gpu_hours` and `window` go together: `gpu_hours: 20` and `window: 7d`")
        if self.users and self.per is not Scope.PERSON:
            raise ValueError("`users` is for quotas per person")
        if self.groups and self.per is Scope.HUB:
            raise ValueError("`groups` is for quotas per person or group; one per hub counts everybody")
        return self

    def rules(self, contact: str) -> Iterator[QuotaRule]:
        """A rule for each limit."""
        window = None if self.window is None else timedelta(seconds=self.window)
        for unit in Unit:
            limit = getattr(self, unit)
            if limit is not None:
                yield QuotaRule(
                    name=self.name,
                    scope=self.per,
                    unit=unit,
                    limit=limit,
                    window=window if unit is Unit.GPU_HOURS else None,
                    users=frozenset(self.users),
                    groups=frozenset(self.groups),
                    contact=self.contact or contact,
                )
