"""`api/v1/nodes…`: what agents report and ask, and what admins see and cordon."""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Final

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow, query
from mig_spawner.allocator.node import SeenNode
from mig_spawner.allocator.openapi.parameter import KNOWN_GENERATION, LIMIT, NODE_CURSOR, PAGE, WAIT
from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.node import NodeDrain, NodeReport
from mig_spawner.wire.problem import ProblemCode

log = logging.getLogger(__name__)

MAX_REPORT: Final = 1024 * 1024


class AgentHandler(Handler):
    """An agent speaks for its own node only."""

    def own(self, node: str) -> str:
        if self.principal.node != node:
            raise refusal(ProblemCode.FORBIDDEN, f"This token is bound to node {self.principal.node}.")
        return node


class Node(AgentHandler):
    """The report of a node, and forgetting one."""

    max_body = MAX_REPORT

    @allow(Role.AGENT)
    async def put(self, name: str) -> None:
        node, report, who = self.own(name), self.parsed(NodeReport), self.principal.who
        self.answer(await self.call(lambda: self.context.nodes.report(node, report, who=who)))

    @allow(Role.SERVICE, Role.ADMIN)
    async def delete(self, name: str) -> None:
        who = self.principal.who
        await self.call(lambda: self.context.nodes.forget(name, who=who))
        log.info("Node %s was forgotten: %s wanted it", name, self.principal.who)
        self.set_status(204)
        self.finish()  # type: ignore[unused-awaitable]


class Desired(AgentHandler):
    """What a node should look like, as soon as it differs from what the agent knows."""

    @allow(Role.AGENT)
    @query(WAIT, KNOWN_GENERATION)
    async def get(self, name: str) -> None:
        node, known = self.own(name), self.value(KNOWN_GENERATION, 0)
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.wait_s
        seen: SeenNode = await self.context.run(lambda: self.context.nodes.desired(node))
        while seen.desired.generation == known and (remaining := deadline - clock()) > 0:
            if not await self.context.changes.wait(lambda p: p.nodes.get(node) != known, seen.revision, remaining):
                break
            seen = await self.context.run(lambda: self.context.nodes.desired(node))
        self.answer(seen.desired)


class Nodes(Handler):
    """All nodes."""

    @allow(Role.SERVICE, Role.ADMIN)
    @query(LIMIT, NODE_CURSOR)
    async def get(self) -> None:
        after, limit = self.value(NODE_CURSOR, None), self.value(LIMIT, PAGE)
        self.answer(await self.context.run(lambda: self.context.nodes.nodes(after=after, limit=limit)))


class Cordon(Handler):
    """Granting nothing more on a node."""

    cordoned: ClassVar[bool] = True

    @allow(Role.SERVICE, Role.ADMIN)
    async def post(self, name: str) -> None:
        who = self.principal.who
        self.answer(await self.call(lambda: self.context.nodes.cordon(name, self.cordoned, who=who)))


class Uncordon(Cordon):
    """Granting again."""

    cordoned = False


class Drain(Handler):
    """Ending what is on a node."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def post(self, name: str) -> None:
        message, who = self.parsed(NodeDrain).message, self.principal.who
        self.answer(await self.call(lambda: self.context.nodes.drain(name, message=message, who=who)))
