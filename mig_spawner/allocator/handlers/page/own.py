"""My slices: what somebody holds, one lease with all that happened to it, and giving it back."""

from __future__ import annotations

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.page.base import Did, PageHandler, Question
from mig_spawner.allocator.page.own import LeaseView
from mig_spawner.allocator.refusal import refusal
from mig_spawner.domain.rule import Person
from mig_spawner.wire.lease import LeaseRelease
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


class Release(Question, LeasePage):
    """Giving a lease back, after one question."""

    async def page(self, *names: str) -> None:
        self._may()
        await self.show("release.html", view=await self.lease(names[0]))

    async def act(self, *names: str) -> None:
        self._may()
        view = await self.lease(names[0])
        who, release = self.principal.who, LeaseRelease()
        await self.call(lambda: self.context.leases.release(view.lease.lease_id, release, who=who))
        self.done("", Did.RELEASED)

    def _may(self) -> None:
        if not self.principal.may(Role.SERVICE, Role.RESERVE):
            raise refusal(
                ProblemCode.FORBIDDEN,
                f"{self.principal.who} may not give slices back here. An admin can grant {Role.RESERVE.value}.",
            )
