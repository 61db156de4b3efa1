"""Quotas and use on the wire."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from mig_spawner.domain.quota import Scope, Unit
from mig_spawner.wire.base import Answer


class QuotaDocument(Answer):
    """How much of one quota is used.

    Attributes:
        name: as the admin calls it; empty for no name.
        per: whose use is counted together: a `person`'s, a `group`'s, or the whole `hub`'s; `subject` names the person or group.
        unit: `slices`, `memory_gb` and `compute_share` count what is held or waited for at once, `gpu_hours` what was used within
            the last `window` seconds.
        left: the limit without what is used; GPU-hours are rounded to hundredths.
        resets_at: when there is some left again at the latest, if nobody takes more. None while some is left, or where nobody can tell.
        contact: whom to ask for more.
        text: the same as a sentence.
    """

    name: str
    per: Scope
    subject: str
    unit: Unit
    limit: float
    used: float
    left: float
    window: float | None = None
    resets_at: datetime | None = None
    contact: str = ""
    text: str


class QuotaList(Answer):
    """The quotas that hold for somebody; empty where nothing is limited."""

    quotas: tuple[QuotaDocument, ...]


class UsageKey(StrEnum):
    """What use is added up by."""

    PERSON = "person"
    GROUP = "group"
    PROFILE = "profile"


class UsageRow(Answer):
    """What was used under one key.

    Attributes:
        key: a person's name, a group's, or a profile; `whole` for uncut GPUs. Who is in several groups counts in each.
        leases: how many leases held something, `open` how many of them still do.
        gpu_seconds: whole-GPU time: seconds held times the part of the GPU's memory slices.
    """

    key: str
    leases: int
    open: int
    gpu_seconds: float


class Usage(Answer):
    """Who used how much between two moments, most first."""

    since: datetime
    until: datetime
    by: UsageKey
    rows: tuple[UsageRow, ...]
    gpu_seconds: float
