"""The menu as one caller sees it."""

from __future__ import annotations

from pydantic import ConfigDict

from mig_spawner.wire.base import Answer
from mig_spawner.wire.menu.entry import MenuEntry
from mig_spawner.wire.quota import QuotaDocument


class SeenEntry(MenuEntry):
    """An entry, and whether the caller may have it.

    Whom it is for (`groups`, `users`) is left out but for admins.

    Attributes:
        allowed: the rules let the caller have it now. Whether one is free is another question, see availability.
        reason: why not, a sentence; empty when allowed.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    allowed: bool = True
    reason: str = ""


class PeakDocument(Answer):
    """The most memory that a person was seen to use on slices of a profile, MiB; of whole GPUs where `profile` is null."""

    profile: str | None
    memory_mib: int


class SeenMenu(Answer):
    """What a caller may have, and what not.

    Attributes:
        entries: in the admin's order; empty when this allocator has no menu, so that everything on offer may be had.
        contact: whom to ask for more.
        currency: of the prices, for an hour.
        timezone: of the days and hours.
        quotas: what is left of those that hold for the caller.
        peaks: the most memory that the caller used before, for each profile that it is known of.
        problem: what is wrong with the file of the menu, so that an older one holds; for admins, empty when nothing is.
    """

    entries: tuple[SeenEntry, ...]
    contact: str = ""
    currency: str = ""
    timezone: str = "UTC"
    quotas: tuple[QuotaDocument, ...] = ()
    peaks: tuple[PeakDocument, ...] = ()
    problem: str = ""
