"""What is different between two menus, for the log of an admin who has changed one."""

from __future__ import annotations

from collections.abc import Iterator

from mig_spawner.wire.menu.entry import MenuEntry
from mig_spawner.wire.menu.menu import Menu


def differences(old: Menu, new: Menu) -> list[str]:
    """Each difference in a few words, in the order of the new menu; empty where nothing is different."""
    return list(_differences(old, new))


def _differences(old: Menu, new: Menu) -> Iterator[str]:
    for name in ("contact", "currency", "zone"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield f"{name}: {str(before) or 'nothing'} became {str(after) or 'nothing'}"
    if old.quotas != new.quotas:
        # Of rules that read the same, such as one with another contact, nothing is to be told.
        before_rules, after_rules = [str(rule) for rule in old.quotas], [str(rule) for rule in new.quotas]
        yield from (f"the quota {rule} is new" for rule in after_rules if rule not in before_rules)
        yield from (f"the quota {rule} is gone" for rule in before_rules if rule not in after_rules)
    for entry in new:
        before_entry = old.get(entry.id)
        if before_entry is None:
            yield f"{entry.id} is new ({entry.request or 'no GPU'})"
        elif before_entry != entry:
            yield f"{entry.id}: {', '.join(_fields(before_entry, entry))}"
    for entry in old:
        if new.get(entry.id) is None:
            yield f"{entry.id} is gone"
    both = [e.id for e in old if new.get(e.id) is not None]
    if both != [e.id for e in new if old.get(e.id) is not None]:
        yield "the order is another"


def _fields(old: MenuEntry, new: MenuEntry) -> Iterator[str]:
    before, after = old.model_dump(mode="json", by_alias=True), new.model_dump(mode="json", by_alias=True)
    for name in after:
        if before[name] != after[name]:
            yield f"{name} {_shown(before[name])} became {_shown(after[name])}"


def _shown(value: object) -> str:
    if value in (None, [], "", False):
        return "nothing"
    return ", ".join(map(str, value))[:120] if isinstance(value, list) else str(value)[:120]
