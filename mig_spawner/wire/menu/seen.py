"""The menu as one caller sees it."""

from __future__ import annotations

from pydantic import ConfigDict

from mig_spawner.wire.base import Answer
from mig_spawner.wire.menu.entry import MenuEntry


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


class SeenMenu(Answer):
    """What a caller may have, and what not.

    Attributes:
        entries: in the admin's order; empty when this allocator has no menu, so that everything on offer may be had.
        contact: whom to ask for more.
        currency: of the prices, for an hour.
        timezone: of the days and hours.
        problem: what is wrong with the file of the menu, so that an older one holds; for admins, empty when nothing is.
    """

    entries: tuple[SeenEntry, ...]
    contact: str = ""
    currency: str = ""
    timezone: str = "UTC"
    problem: str = ""
