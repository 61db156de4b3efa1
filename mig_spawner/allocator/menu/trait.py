"""The settings that lead to the menu of the allocator."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, HasTraits, List, TraitError, Unicode, Union, validate

from mig_spawner.allocator.menu.source import MenuSource
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.menu import Menu


class MenuTraits(HasTraits):
    """Where the menu is."""

    menu = Union(
        [List(), Dict()],
        help="""What people may have: a list of entries, a mapping from id to entry, or a mapping with `entries` and what holds for all
        of them (`contact`, `currency`, `timezone`). The page on the menu has every key.

        With a menu nothing else can be leased, whoever asks and by whatever way; without one, everything on offer by everybody.
        """,
    ).tag(config=True)

    menu_file = Unicode(
        help="""A YAML file with the menu, used where `menu` is empty; the same file that `MIGSpawner.menu_file` may name.

        It is read again within a second of a change, and what changed is logged. A file that cannot be read then changes nothing but
        the log: the menu from before holds on. Nobody who holds a lease is touched.
        """
    ).tag(config=True)

    @validate("menu")
    def _a_menu(self, proposal: Any) -> Any:
        try:
            Menu.parse(proposal.value)
        except InvalidRequest as error:
            raise TraitError(str(error)) from error
        return proposal.value

    def menu_source(self) -> MenuSource:
        """The menu that these settings lead to.

        Raises:
            InvalidRequest: the file cannot be read.
        """
        return MenuSource(Menu.parse(self.menu), self.menu_file)
