"""`api/v1/menu`: what the caller may have, or for those who see everything, what somebody else may."""

from __future__ import annotations

from datetime import datetime, time

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.menu.view import of_person, seen_menu
from mig_spawner.allocator.openapi.parameter import VIEW_DATE, VIEW_GROUP, VIEW_USER
from mig_spawner.allocator.refusal import refusal
from mig_spawner.domain.rule import Person
from mig_spawner.wire.menu.seen import SeenMenu
from mig_spawner.wire.problem import ProblemCode


class ViewHandler(Handler):
    """Shows things as somebody sees them: the caller, or whom those who see everything name."""

    @property
    def views_as(self) -> bool:
        """Whether somebody else is named in the query."""
        return self.value(VIEW_USER, None) is not None or bool(self.value(VIEW_GROUP, ()))

    @property
    def viewed(self) -> Person:
        """As whom to look."""
        if not self.views_as:
            return Person(self.principal.person or "", self.principal.groups)
        if not self.principal.sees_all:
            raise refusal(ProblemCode.FORBIDDEN, "You see it as yourself: leave user and group out.")
        groups: tuple[str, ...] = self.value(VIEW_GROUP, ())
        return Person(self.value(VIEW_USER, None) or "", frozenset(groups))


class MenuHandler(ViewHandler):
    """The menu."""

    @allow(Role.SERVICE, Role.READ)
    @query(VIEW_USER, VIEW_GROUP, VIEW_DATE)
    async def get(self) -> None:
        self.answer(await self.context.run(self._seen))

    def _seen(self) -> SeenMenu:
        menu, day = self.context.menu.menu, self.value(VIEW_DATE, None)
        person = self.viewed
        with self.context.desk.reading() as ledger:
            now, theirs = ledger.now, of_person(ledger, person)
        if day is not None:
            now = datetime.combine(day, time(12), menu.zone)
        names = self.principal.sees_all and not self.views_as
        seen = seen_menu(menu, person, now, names=names, problem=self.context.menu.problem)
        return seen.model_copy(update=theirs)
