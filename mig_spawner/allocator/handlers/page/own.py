"""My slices: what somebody holds, one lease with all that happened to it, and giving it back."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.page.base import Did, PageHandler, Question
from mig_spawner.allocator.page.own import LeaseView
from mig_spawner.allocator.refusal import refusal
from mig_spawner.domain.rule import Person
from mig_spawner.wire.lease import LeaseExtension, LeaseRelease
from mig_spawner.wire.problem import ProblemCode


class Slices(PageHandler):
    """Who am I, what do I hold, what is free."""

    async def page(self, *names: str) -> None:
        name, groups = self.principal.person, self.principal.groups
        person = None if name is None else Person(name, groups)
        view = await self.context.run(lambda: self.context.pages.own(person))
        await self.show("slices.html", view=view)


class LeasePage(PageHandler):
    """One lease, for its holder and for admins."""

    async def page(self, *names: str) -> None:
        await self.show("lease.html", view=await self.lease(names[0]))

    async def lease(self, lease_id: str) -> LeaseView:
        """A lease that may be seen."""
        person, sees_all = self.principal.person, self.principal.sees_all
        view: LeaseView = await self.context.run(
            lambda: self.context.pages.lease(lease_id, person=person, sees_all=sees_all)
        )
        return view


class OwnAct(Question, LeasePage):
    """Something that a holder does with a lease of theirs, after one question.

    Attributes:
        verb: what is done, in the sentence of whoever may not.
    """

    verb: ClassVar[str]

    async def _enter(self) -> bool:
        if not await super()._enter():
            return False
        if not self.principal.may(Role.SERVICE, Role.RESERVE):
            raise refusal(
                ProblemCode.FORBIDDEN,
                f"{self.principal.who} may not {self.verb} slices here. An admin can grant {Role.RESERVE.value}.",
            )
        return True


class Release(OwnAct):
    """Giving a lease back."""

    verb = "give back"

    async def page(self, *names: str) -> None:
        await self.show("release.html", view=await self.lease(names[0]))

    async def act(self, *names: str) -> None:
        view = await self.lease(names[0])
        who, release = self.principal.who, LeaseRelease()
        await self.call(lambda: self.context.leases.release(view.lease.lease_id, release, who=who))
        self.done("", Did.RELEASED)


class Extend(OwnAct):
    """Keeping a lease for longer."""

    verb = "extend"

    async def page(self, *names: str) -> None:
        person, sees_all = self.principal.person, self.principal.sees_all
        view = await self.context.run(lambda: self.context.pages.extend(names[0], person=person, sees_all=sees_all))
        await self.show("extend.html", view=view)

    async def act(self, *names: str) -> None:
        duration = timedelta(seconds=self.form(LeaseExtension).duration)
        view = await self.lease(names[0])
        who = self.principal.who
        await self.call(lambda: self.context.leases.extend(view.lease.lease_id, duration, who=who))
        self.done("", Did.EXTENDED)
