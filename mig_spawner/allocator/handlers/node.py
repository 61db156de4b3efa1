"""`api/v1/nodes…`: what agents report and ask, and what admins see and cordon."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler, allow
from mig_spawner.allocator.node import SeenNode
from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.node import NodeReport
from mig_spawner.wire.problem import ProblemCode

MAX_REPORT: Final = 1024 * 1024


class AgentHandler(Handler):
    """An agent speaks for its own node only."""

    def own(self, node: str) -> str:
        if self.principal.node != node:
            raise refusal(ProblemCode.FORBIDDEN, f"This token is bound to node {self.principal.node}.")
        return node


class Node(AgentHandler):
    """The report of a node."""

    max_body = MAX_REPORT

    @allow(Role.AGENT)
    async def put(self, name: str) -> None:
        node, report, who = self.own(name), self.parsed(NodeReport), self.principal.who
        self.answer(await self.call(lambda: self.context.nodes.report(node, report, who=who)))


class Desired(AgentHandler):
    """What a node should look like, as soon as it differs from what the agent knows."""

    @allow(Role.AGENT)
    async def get(self, name: str) -> None:
        node, known = self.own(name), self._known()
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.wait_s
        seen: SeenNode = await self.context.run(lambda: self.context.nodes.desired(node))
        while seen.desired.generation == known and (remaining := deadline - clock()) > 0:
            if not await self.context.changes.wait(lambda p: p.nodes.get(node) != known, seen.revision, remaining):
                break
            seen = await self.context.run(lambda: self.context.nodes.desired(node))
        self.answer(seen.desired)

    def _known(self) -> int:
        text = self.get_query_argument("known", "0")
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise refusal(ProblemCode.INVALID, "known: the generation that the agent has, a whole number.")
        return int(text)


class Nodes(Handler):
    """All nodes."""

    @allow(Role.SERVICE, Role.ADMIN)
    async def get(self) -> None:
        self.answer(await self.context.run(self.context.nodes.nodes))


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
