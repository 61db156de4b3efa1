"""The menu as the user of one server sees it: the hub's own, else the allocator's, else whatever is on offer. Pure.

The allocator decides who may have what, whoever asks. Here it is foretold, so that the form can say it before anybody presses Start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mig_spawner.domain.rule import Person
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.lease import MAX_GROUPS
from mig_spawner.wire.menu import Menu, MenuEntry, live_menu
from mig_spawner.wire.menu.seen import SeenMenu

MAX_NAME = 255


@dataclass(frozen=True)
class UserMenu:
    """What a user may choose from.

    Attributes:
        refusals: why they may not have an entry, by its id.
    """

    menu: Menu
    refusals: Mapping[str, str] = field(default_factory=dict)

    @property
    def usual(self) -> Menu:
        """What may be taken when nobody chose: without what the user may not have."""
        return Menu([entry for entry in self.menu if entry.id not in self.refusals])


def user_menu(
    own: Menu, seen: SeenMenu | None, availability: Availability | None, person: Person, now: datetime
) -> UserMenu:
    """The menu of a user.

    Args:
        own: of the hub; empty for none.
        seen: what the allocator has for this user; None when it does not answer.
        availability: what is on offer, for a hub and an allocator without a menu.
    """
    theirs = {entry.id: entry.reason for entry in seen.entries if not entry.allowed} if seen is not None else {}
    if not len(own):
        if seen is None or not seen.entries:
            return UserMenu(live_menu(availability))
        return UserMenu(Menu(seen.entries, contact=seen.contact, currency=seen.currency), theirs)
    clock = own.clock(now)
    refusals = {entry.id: theirs.get(entry.id) or entry.rule.refusal(person, clock) for entry in own}
    refusals = {entry_id: reason for entry_id, reason in refusals.items() if reason}
    shown = [entry for entry in own if not (entry.hide and entry.id in refusals)]
    currency = own.currency or (seen.currency if seen is not None else "")
    return UserMenu(Menu(shown, contact=own.contact, currency=currency), refusals)


def groups_of(user: Any) -> tuple[str, ...]:
    """The names of a hub user's groups, as many and as long as the allocator takes."""
    groups: Iterable[Any] = getattr(user, "groups", None) or ()
    names = {str(group.name) for group in groups}
    return tuple(sorted(name for name in names if name and name.isprintable() and len(name) <= MAX_NAME))[:MAX_GROUPS]


def price_text(entry: MenuEntry, currency: str) -> str:
    """`0.5 credits per hour`; empty without a price."""
    return "" if entry.price is None else f"{entry.price:g} {currency}".strip() + " per hour"
