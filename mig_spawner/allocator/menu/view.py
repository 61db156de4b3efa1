"""The menu as a caller sees it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.quota.view import quota_documents
from mig_spawner.domain.rule import Person
from mig_spawner.wire.menu import Menu, MenuEntry
from mig_spawner.wire.menu.seen import PeakDocument, SeenEntry, SeenMenu


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


def of_person(ledger: Ledger, person: Person) -> dict[str, object]:
    """What goes with the menu of one person: what is left of quotas, and what they used before. Nothing for nobody."""
    if not person.name:
        return {}
    peaks = ledger.tx.peaks(person.name)
    return {
        "quotas": quota_documents(ledger, person),
        "peaks": tuple(PeakDocument(profile=profile, memory_mib=mib) for profile, mib in peaks.items()),
    }


def _seen(menu: Menu, person: Person, now: datetime, *, names: bool) -> Iterator[SeenEntry]:
    clock = menu.clock(now)
    for entry in menu:
        reason = entry.rule.refusal(person, clock)
        if reason and entry.hide and not names:
            continue
        yield SeenEntry.model_validate({**_fields(entry, names=names), "allowed": not reason, "reason": reason})


def _fields(entry: MenuEntry, *, names: bool) -> dict[str, object]:
    return entry.model_dump(by_alias=True, exclude=None if names else {"users", "groups"})
