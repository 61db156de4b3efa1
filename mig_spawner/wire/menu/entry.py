"""One thing on the menu: what it is, what the host gives beside it, and who may have it."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.domain.rule import Rule
from mig_spawner.errors import InvalidProfile
from mig_spawner.wire.base import Document
from mig_spawner.wire.menu.value import (
    Bytes,
    Cores,
    Day,
    Duration,
    Flag,
    Frameworks,
    Gigabytes,
    Names,
    Price,
    WeekHours,
)

KINDS: Final = ("profile", "min_memory", "whole", "none")
_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9._+-]{0,61}[a-z0-9])?")


class MenuEntry(Document):
    """One thing on the menu.

    Attributes:
        id: lower-case letters, digits and `._+-`; at most 63 characters.
        profile: this MIG profile; `min_memory`: any slice with so many GB; `whole`: a GPU that is not cut; `none`: no GPU.
        cpu_limit, cpu_guarantee: cores of the host.
        mem_limit, mem_guarantee, shm: bytes of the host. What is written to `/dev/shm` counts within `mem_limit`.
        duration: how long a server may keep the slice, seconds; without it, as long as it runs.
        max_duration: how long with extensions, seconds; without it, no longer than `duration`.
        price: for an hour, in the menu's currency. It is shown, nothing more.
        default: taken when nobody chose.
        groups, users: who may have it: whoever is in one of the groups, or named; without both, everybody.
        first_day, last_day: `from` and `until`, the first and the last day on which it can be had.
        hours: of the week in which it can be had, such as `Mon-Fri 08:00-18:00`.
        hints: frameworks whose memory settings the notebook gets.
        hide: from those who may not have it; without it they see it, with the reason.
    """

    id: str
    display_name: Annotated[str, Field(strict=True, min_length=1, max_length=200)]
    description: Annotated[str, Field(strict=True, max_length=2000)] = ""
    profile: str | None = None
    min_memory: Gigabytes | None = None
    whole: Flag = False
    none: Flag = False
    cpu_limit: Cores | None = None
    cpu_guarantee: Cores | None = None
    mem_limit: Bytes | None = None
    mem_guarantee: Bytes | None = None
    shm: Bytes | None = None
    duration: Duration | None = None
    max_duration: Duration | None = None
    price: Price | None = None
    default: Flag = False
    groups: Names = ()
    users: Names = ()
    first_day: Annotated[Day | None, Field(alias="from")] = None
    last_day: Annotated[Day | None, Field(alias="until")] = None
    hours: WeekHours = ()
    hints: Frameworks = ()
    hide: Flag = False

    @field_validator("id")
    @classmethod
    def _an_id(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError(f"the id {value!r} must be 1 to 63 of a-z, 0-9 and ._+-, for example small-slice")
        return value

    @field_validator("profile")
    @classmethod
    def _a_profile(cls, value: str | None) -> str | None:
        try:
            return None if value is None else str(ProfileName.parse(value))
        except InvalidProfile as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _consistent(self) -> MenuEntry:
        kinds = [k for k in KINDS if getattr(self, k) not in (None, False)]
        if len(kinds) != 1:
            said = "nothing" if not kinds else " and ".join(kinds)
            raise ValueError(
                f"it says {said}; write exactly one of `profile: 1g.10gb`, `min_memory: 12`, `whole: true` or `none: true`"
            )
        for limit, part in (("cpu_limit", "cpu_guarantee"), ("mem_limit", "mem_guarantee"), ("mem_limit", "shm")):
            most, least = getattr(self, limit), getattr(self, part)
            if most is not None and least is not None and least > most:
                raise ValueError(f"{part} is more than {limit}; lower {part} or raise {limit}")
        if self.none and self.duration is not None:
            raise ValueError("a duration is for slices; remove `duration` beside `none: true`")
        if self.max_duration is not None and (self.duration is None or self.max_duration < self.duration):
            raise ValueError("max_duration is how long `duration` may become; write a `duration` that is not longer")
        if self.none and self.hints:
            raise ValueError("hints are for slices; remove `hints` beside `none: true`")
        if self.first_day is not None and self.last_day is not None and self.last_day < self.first_day:
            raise ValueError("`until` is before `from`; the first day comes first")
        return self

    @property
    def mig_profile(self) -> ProfileName | None:
        return None if self.profile is None else ProfileName.parse(self.profile)

    @property
    def request(self) -> Request | None:
        """What to ask the allocator for; None without a GPU."""
        if self.none:
            return None
        if self.profile is not None:
            return SliceRequest(ProfileName.parse(self.profile))
        return WholeRequest() if self.min_memory is None else MemoryRequest(self.min_memory)

    @property
    def size(self) -> tuple[float, int] | None:
        """For choosing the smallest: memory in GB as in names, then compute slices; None where the entry names no size."""
        if self.mig_profile is not None:
            return (self.mig_profile.memory_gb, self.mig_profile.compute_slices)
        return None if self.min_memory is None else (self.min_memory, 0)

    @property
    def rule(self) -> Rule:
        """Who may have it, and when."""
        return Rule(frozenset(self.users), frozenset(self.groups), self.first_day, self.last_day, self.hours)
