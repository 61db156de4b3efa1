"""The menu as the allocator has loaded it, and as any person, group or day sees it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated

from pydantic import Field

from mig_spawner.allocator.menu.source import MenuSource, Reload
from mig_spawner.allocator.menu.view import seen_menu
from mig_spawner.domain.rule import Person
from mig_spawner.wire.base import Document, Label
from mig_spawner.wire.menu.seen import SeenMenu

MAX_GROUPS = 50


class MenuQuery(Document):
    """As whom to look, and when; without a user and groups, as an admin who sees whom each entry is for."""

    user: Label = ""
    groups: Annotated[str, Field(max_length=2000)] = ""
    day: date | None = None


@dataclass(frozen=True, slots=True)
class MenuView:
    """The menu.

    Attributes:
        version: of what is loaded; changes with any word of it.
        reload: what the last change of the file changed; None where it has not been changed.
        viewed: somebody else's view is shown.
    """

    query: MenuQuery
    menu: SeenMenu
    version: str
    reload: Reload | None
    viewed: bool


def menu_view(source: MenuSource, query: MenuQuery, now: datetime) -> MenuView:
    """The menu as it is loaded now."""
    menu = source.menu
    viewed = bool(query.user or query.groups.strip())
    groups = [name.strip() for name in query.groups.split(",") if name.strip()][:MAX_GROUPS]
    at = now if query.day is None else datetime.combine(query.day, time(12), menu.zone)
    nobody = Person("", frozenset())
    everything = seen_menu(menu, nobody, now, names=True).model_dump_json(
        exclude={"entries": {"__all__": {"allowed", "reason"}}}
    )
    seen = seen_menu(menu, Person(query.user, frozenset(groups)), at, names=not viewed, problem=source.problem)
    return MenuView(
        query=query,
        menu=seen.model_copy(update={"problem": source.problem}),
        version=hashlib.sha256(everything.encode()).hexdigest()[:12],
        reload=source.reload,
        viewed=viewed,
    )
