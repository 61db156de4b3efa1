"""The menu as a caller sees it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from mig_spawner.domain.rule import Person
from mig_spawner.wire.menu import Menu, MenuEntry
from mig_spawner.wire.menu.seen import SeenEntry, SeenMenu


def seen_menu(menu: Menu, person: Person, now: datetime, *, names: bool = False, problem: str = "") -> SeenMenu:
    """What the menu has for a person at a moment.

    Args:
        names: show whom each entry is for, and what is wrong with the file: for those who see everything.
    """
    return SeenMenu(
        entries=tuple(_seen(menu, person, now, names=names)),
        contact=menu.contact,
        currency=menu.currency,
        timezone=str(menu.zone),
        problem=problem if names else "",
    )


def _seen(menu: Menu, person: Person, now: datetime, *, names: bool) -> Iterator[SeenEntry]:
    clock = menu.clock(now)
    for entry in menu:
        reason = entry.rule.refusal(person, clock)
        if reason and entry.hide and not names:
            continue
        yield SeenEntry.model_validate({**_fields(entry, names=names), "allowed": not reason, "reason": reason})


def _fields(entry: MenuEntry, *, names: bool) -> dict[str, object]:
    return entry.model_dump(by_alias=True, exclude=None if names else {"users", "groups"})
