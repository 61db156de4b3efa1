"""Who calls, and what they may do.

Four kinds of caller, told apart by what they show: the hub and other services by a token that both sides know (compared in
constant time, no question to anybody), an agent by the token of its one node, a browser by a ticket that the hub asked for,
and people by their login at the hub: a cookie from its OAuth dance, or a token of theirs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from jupyterhub.services.auth import HubOAuth
from tornado.web import HTTPError, RequestHandler

from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.availability import Ticket
from mig_spawner.wire.problem import ProblemCode

log = logging.getLogger(__name__)

TICKET_LIFE_S: Final = 15 * 60
INTROSPECTION_TIMEOUT_S: Final = 10
_BEARER: Final = re.compile(r"(?:bearer|token)\s+(\S+)\s*", re.IGNORECASE)
_TICKET_PREFIX: Final = "mig-ticket."
_AUDIENCE: Final = "availability"


class Role(StrEnum):
    """What a verb of the API asks for."""

    SERVICE = "service"
    AGENT = "agent"
    TICKET = "ticket"
    READ = "custom:mig:read"
    RESERVE = "custom:mig:reserve"
    ADMIN = "custom:mig:admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller who is known.

    Attributes:
        who: for the audit and the log.
        roles: what they may do.
        person: their name at the hub; None for a service, an agent and a ticket.
        node: the one node of an agent.
        groups: their groups at the hub.
    """

    who: str
    roles: frozenset[Role]
    person: str | None = None
    node: str | None = None
    groups: frozenset[str] = frozenset()

    def may(self, *roles: Role) -> bool:
        return not self.roles.isdisjoint(roles)

    @property
    def sees_all(self) -> bool:
        """Whether the leases of everybody are theirs to see and end."""
        return self.may(Role.SERVICE, Role.ADMIN)


class Tickets:
    """Signs and checks tickets: an HMAC over who and until when, for availability and nothing else."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    def issue(self, user_name: str) -> Ticket:
        expires = int(self._clock()) + TICKET_LIFE_S
        payload = _encode(json.dumps({"aud": _AUDIENCE, "exp": expires, "user": user_name}).encode())
        ticket = f"{_TICKET_PREFIX}{payload}.{self._sign(payload)}"
        return Ticket(ticket=ticket, expires_at=datetime.fromtimestamp(expires, UTC))

    def user_name(self, token: str) -> str | None:
        """Whose ticket it is; None if it is none of ours, or over."""
        payload, _, signature = token.removeprefix(_TICKET_PREFIX).partition(".")
        if not token.startswith(_TICKET_PREFIX) or not _equal(signature, self._sign(payload)):
            return None
        claims = json.loads(base64.urlsafe_b64decode(payload))
        valid = claims["aud"] == _AUDIENCE and claims["exp"] > self._clock()
        return str(claims["user"]) if valid else None

    def _sign(self, payload: str) -> str:
        return _encode(hmac.digest(self._key, payload.encode(), hashlib.sha256))


class Auth:
    """Knows callers.

    Args:
        hub: asks the hub who somebody is; None when this allocator has no token of its own at a hub, so that people cannot log in.
    """

    def __init__(
        self, *, service_tokens: Sequence[str], agent_tokens: Mapping[str, str], tickets: Tickets, hub: HubOAuth | None
    ) -> None:
        self._service_tokens = tuple(service_tokens)
        self._agent_tokens = dict(agent_tokens)
        self.tickets = tickets
        self.hub = hub

    def __repr__(self) -> str:
        return f"Auth({len(self._service_tokens)} service tokens, agents of {sorted(self._agent_tokens)})"

    async def principal(self, handler: RequestHandler) -> Principal | None:
        """Who calls; None for nobody that is known.

        Raises:
            AllocatorRefused: the hub would have to be asked, and cannot be.
        """
        match = _BEARER.fullmatch(handler.request.headers.get("Authorization", ""))
        if match is not None:
            known = self._by_token(match[1])
            if known is not None or match[1].startswith(_TICKET_PREFIX):
                return known
        return None if self.hub is None else await self._by_hub(self.hub, handler)

    def _by_token(self, token: str) -> Principal | None:
        # Every token is compared, so that the time tells nothing.
        if any([_equal(token, known) for known in self._service_tokens]):  # noqa: C419
            return Principal("hub", frozenset({Role.SERVICE}))
        nodes = [node for node, known in self._agent_tokens.items() if _equal(token, known)]
        if nodes:
            return Principal(f"agent {nodes[0]}", frozenset({Role.AGENT}), node=nodes[0])
        user_name = self.tickets.user_name(token)
        return None if user_name is None else Principal(f"ticket {user_name}", frozenset({Role.TICKET}))

    async def _by_hub(self, hub: HubOAuth, handler: RequestHandler) -> Principal | None:
        try:
            async with asyncio.timeout(INTROSPECTION_TIMEOUT_S):
                model = await hub.get_user(handler, sync=False)
        except (HTTPError, TimeoutError) as error:
            log.warning("The hub cannot say who calls: %s", error)
            raise refusal(
                ProblemCode.NOT_READY, "The hub cannot be asked who you are. Try again when it is up."
            ) from error
        return None if model is None else person(hub, model)


def person(hub: HubOAuth, model: dict[str, Any]) -> Principal:
    """A person, or another service, as the hub describes it.

    Raises:
        AllocatorRefused: they may not use this service at all.
    """
    name = str(model["name"])
    if hub.access_scopes and not hub.check_scopes(hub.access_scopes, model):
        raise refusal(
            ProblemCode.FORBIDDEN, f"{name} may not use this service. An admin of the hub can grant access:services."
        )
    groups = {str(group) for group in model.get("groups") or ()}
    roles = set()
    # Who may more may also what is less, whether or not the hub's custom_scopes say so by subscopes.
    for role, includes in (
        (Role.READ, {Role.READ}),
        (Role.RESERVE, {Role.READ, Role.RESERVE}),
        (Role.ADMIN, {Role.READ, Role.RESERVE, Role.ADMIN}),
    ):
        if hub.check_scopes({role.value, f"{role.value}!user={name}"}, model):
            roles |= includes
    return Principal(f"{model.get('kind', 'user')} {name}", frozenset(roles), person=name, groups=frozenset(groups))


def _equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode("utf-8", "surrogatepass"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
