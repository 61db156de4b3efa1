"""`api/v1/leases…`: acquire, read, change, renew, extend, learn the device, release."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from mig_spawner.allocator.auth import Principal, Role
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.openapi.parameter import (
    HOLDER_SERVER_NAME,
    HOLDER_USER_ID,
    KNOWN_POSITION,
    LEASE_CURSOR,
    LIMIT,
    PAGE,
    SERVER_NAME,
    USER_ID,
    WAIT,
)
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.service import Seen
from mig_spawner.allocator.store.base import Progress
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.wire.lease import LeaseDocument, LeaseExtension, LeaseList, LeaseRelease, LeaseRequest, LeaseState
from mig_spawner.wire.pick import DevicePick
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.queue import LeaseChange

_UNDECIDED = (LeaseState.QUEUED, LeaseState.GRANTED)
MAX_REQUEST: Final = 512 * 1024
"""People may have many groups, with long names."""
OWN_PREFIX = "name:"
"""A person who calls the API holds leases under `name:<their name>`; the hub's spawner under the hub's number of the user."""


class LeaseHandler(Handler):
    """What the handlers of leases share."""

    async def until(
        self, seen: Seen, is_stale: Callable[[LeaseDocument], bool], *, by_place: bool = False
    ) -> LeaseDocument:
        """The lease as soon as it is not stale any more, at the latest after `?wait=`.

        Args:
            by_place: it may be so for its place in line alone. Otherwise those who wait are not woken whenever the line moves.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.wait_s
        while is_stale(seen.document) and (remaining := deadline - clock()) > 0:
            lease_id, changes = seen.document.lease_id, self.context.changes
            if not await changes.wait(_moved_from(seen.document, by_place), seen.revision, remaining):
                # Where it is in line may be another by now.
                return (await self.read(lease_id) if changes.revision > seen.revision else seen).document
            seen = await self.read(lease_id)
        return seen.document

    async def read(self, lease_id: str) -> Seen:
        """A lease that the caller may see. Somebody else's is not there."""
        seen: Seen = await self.context.run(lambda: self.context.leases.lease(lease_id))
        if not may_see(self.principal, seen.document):
            raise refusal(ProblemCode.NOT_FOUND, "There is no such lease.")
        return seen

    def refuse_priority(self, priority: int) -> None:
        """Services and admins set any priority; a person at most what everybody has."""
        if priority > 0 and not self.principal.sees_all:
            raise refusal(ProblemCode.FORBIDDEN, "Only services and admins set a priority above 0. Leave it out.")

    def parsed_release(self) -> LeaseRelease:
        """How a lease ends. What a person says of a pod is not taken for known, and only admins force."""
        release = self.parsed(LeaseRelease)
        if self.principal.sees_all:
            return release
        if release.reason is EndReason.FORCED:
            raise refusal(ProblemCode.FORBIDDEN, "Only an admin ends a lease by force. Say stopped.")
        return release.model_copy(update={"pod": PodFate.UNKNOWN})


def _moved_from(document: LeaseDocument, by_place: bool) -> Callable[[Progress], bool]:
    state, place = document.state.value, document.position or 0

    def moved(progress: Progress) -> bool:
        state_now, place_now = progress.leases.get(document.lease_id, ("closed", 0))
        return state_now != state or (by_place and place_now != place)

    return moved


def may_see(principal: Principal, lease: LeaseDocument) -> bool:
    return principal.sees_all or principal.person == lease.holder.user_name


class Leases(LeaseHandler):
    """The open leases, and asking for one."""

    max_body = MAX_REQUEST

    @allow(Role.SERVICE, Role.READ)
    @query(USER_ID, SERVER_NAME, LIMIT, LEASE_CURSOR)
    async def get(self) -> None:
        user_name = None if self.principal.sees_all else self.principal.person
        found: LeaseList = await self.context.run(
            lambda: self.context.leases.leases(
                user_id=self.value(USER_ID, None),
                server_name=self.value(SERVER_NAME, None),
                user_name=user_name,
                after=self.value(LEASE_CURSOR, None),
                limit=self.value(LIMIT, PAGE),
            )
        )
        self.answer(found)

    @allow(Role.SERVICE, Role.RESERVE)
    @query(WAIT)
    async def post(self) -> None:
        request = self._own(self.parsed(LeaseRequest))
        self._slow_down(request)
        who, _ = self.principal.who, self.wait_s
        seen = await self.call(lambda: self.context.leases.acquire(request, who=who))
        self.answer(await self.until(seen, lambda document: document.state in _UNDECIDED))

    def _slow_down(self, request: LeaseRequest) -> None:
        """Refuse who asks too often. A service asks for many people, so each of them counts for themselves."""
        whose = "" if self.principal.person is not None else request.holder.to_domain().person
        wait_s = self.context.rate.wait_for(f"{self.principal.who} {whose}")
        if wait_s:
            raise refusal(
                ProblemCode.RATE_LIMITED,
                f"Asked too often: wait {math.ceil(wait_s)} s. To wait for a slice, ask once with `wait`, or read the lease.",
                retry_after_s=wait_s,
            )

    def _own(self, request: LeaseRequest) -> LeaseRequest:
        holder = request.holder
        person = self.principal.person
        if person is None:
            return request
        own = f"{OWN_PREFIX}{person}"
        if holder.user_id != own or holder.user_name not in ("", person):
            raise refusal(ProblemCode.FORBIDDEN, f"Ask for yourself: holder.user_id is {own!r} for you.")
        self.refuse_priority(request.priority)
        named = holder.model_copy(update={"user_name": person})
        return request.model_copy(update={"holder": named, "groups": tuple(sorted(self.principal.groups))})


class Lease(LeaseHandler):
    """One lease."""

    @allow(Role.SERVICE, Role.READ)
    @query(WAIT, KNOWN_POSITION)
    async def get(self, lease_id: str) -> None:
        known = self.value(KNOWN_POSITION, None)
        seen = await self.read(lease_id)

        def is_stale(document: LeaseDocument) -> bool:
            if known is None:
                return document.state in _UNDECIDED
            return f"{document.state}:{document.position or 0}" == known

        self.answer(await self.until(seen, is_stale, by_place=known is not None))

    @allow(Role.SERVICE, Role.RESERVE)
    async def patch(self, lease_id: str) -> None:
        wanted = self.parsed(LeaseChange)
        self.refuse_priority(wanted.priority or 0)
        await self.read(lease_id)
        who = self.principal.who
        self.answer((await self.call(lambda: self.context.queue.change(lease_id, wanted, who=who))).document)


class Renew(LeaseHandler):
    """Taking a Ready lease, and the heartbeat of an Active one."""

    @allow(Role.SERVICE, Role.RESERVE)
    async def post(self, lease_id: str) -> None:
        await self.read(lease_id)
        who = self.principal.who
        self.answer(await self.call(lambda: self.context.leases.renew(lease_id, who=who)))


class Extend(LeaseHandler):
    """Keeping a lease for longer."""

    @allow(Role.SERVICE, Role.RESERVE)
    async def post(self, lease_id: str) -> None:
        duration = timedelta(seconds=self.parsed(LeaseExtension).duration)
        await self.read(lease_id)
        who = self.principal.who
        self.answer(await self.call(lambda: self.context.leases.extend(lease_id, duration, who=who)))


class Device(LeaseHandler):
    """Which device a node gave to the pod of a lease."""

    @allow(Role.SERVICE)
    async def post(self, lease_id: str) -> None:
        device_uuid = self.parsed(DevicePick).device_uuid
        who = self.principal.who
        self.answer(await self.call(lambda: self.context.leases.learn(lease_id, device_uuid, who=who)))


class Release(LeaseHandler):
    """Giving a lease back."""

    @allow(Role.SERVICE, Role.RESERVE)
    async def post(self, lease_id: str) -> None:
        release = self.parsed_release()
        await self.read(lease_id)
        who = self.principal.who
        self.answer(await self.call(lambda: self.context.leases.release(lease_id, release, who=who)))


class ReleaseHolder(LeaseHandler):
    """Giving back whatever a holder has."""

    @allow(Role.SERVICE, Role.RESERVE)
    @query(HOLDER_USER_ID, HOLDER_SERVER_NAME)
    async def post(self) -> None:
        release = self.parsed_release()
        user_id, server_name = self.value(HOLDER_USER_ID, ""), self.value(HOLDER_SERVER_NAME, "")
        own = f"{OWN_PREFIX}{self.principal.person}"
        if not self.principal.sees_all and user_id != own:
            raise refusal(ProblemCode.FORBIDDEN, f"Release what is yours: user_id is {own!r} for you.")
        who = self.principal.who
        released: LeaseList = await self.call(
            lambda: self.context.leases.release_holder(user_id, server_name, release, who=who)
        )
        self.answer(released)
