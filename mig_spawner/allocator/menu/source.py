"""The menu that holds now: read at start, read again when its file changes, never replaced by a broken one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.difference import differences
from mig_spawner.wire.menu.file import read_menu

log = logging.getLogger(__name__)

_MOST_LOGGED: Final = 20


@dataclass(frozen=True, slots=True)
class Reload:
    """A menu that took the place of another: when, and each difference in a few words."""

    at: datetime
    changes: tuple[str, ...]


class MenuSource:
    """A menu, and the file it comes from.

    Args:
        menu: what the configuration says; used where it is not empty.
        path: the file; empty for none.

    Attributes:
        menu: what holds now. A new object for each change, so whoever took it decides by one menu throughout.
        reload: how it came to hold; None where nothing has changed since the allocator started.
        problem: why the file is not what holds; empty when it is.

    Raises:
        InvalidRequest: at the start the file must be right.
    """

    def __init__(self, menu: Menu | None = None, path: str = "") -> None:
        inline = menu if menu is not None else Menu()
        self._path = path if inline == Menu() else ""
        self.menu = read_menu(path) if self._path else inline
        self.problem = ""
        self.reload: Reload | None = None

    def current(self) -> Menu:
        """The menu that holds now."""
        return self.menu

    def refresh(self) -> None:
        """Look at the file again. What changed is logged; what is wrong with it too, once, and the menu from before holds on."""
        if not self._path:
            return
        try:
            found = read_menu(self._path)
        except InvalidRequest as error:
            if str(error) != self.problem:
                log.warning("%s The menu from before holds on.", error)
            self.problem = str(error)
            return
        if self.problem:
            log.info("The menu file %s can be read again", self._path)
            self.problem = ""
        if found is self.menu:
            return
        changes = differences(self.menu, found)
        self.menu, self.reload = found, Reload(datetime.now(UTC), tuple(changes))
        for change in changes[:_MOST_LOGGED]:
            log.info("The menu has changed: %s", change)
        if len(changes) > _MOST_LOGGED:
            log.info("The menu has changed: and %d more", len(changes) - _MOST_LOGGED)
