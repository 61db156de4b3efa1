"""The view that a transaction has of the ledger, brought up to date with what was written since it was last had."""

from __future__ import annotations

from mig_spawner.allocator.kept.facts import Facts
from mig_spawner.allocator.kept.fleet import Fleet
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import Transaction


class View:
    """Facts, and what follows from them for placement. One transaction has it at a time."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.facts = Facts()
        self.fleet = Fleet(self.facts, setting)


def view_of(tx: Transaction, setting: Setting) -> View:
    """The view in the slot of a transaction, as the ledger is in it; a new one if there is none, or its facts cannot be told any more."""
    slot = tx.slot
    changed = tx.changed()
    view = slot.view if isinstance(slot.view, View) and slot.view.setting == setting else None
    try:
        if changed is None or view is None:
            slot.view = view = View(setting)
            view.facts.take_in(tx, None)
        elif changed:
            view.facts.take_in(tx, changed)
    except BaseException:
        slot.view = None
        raise
    return view
