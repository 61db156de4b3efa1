"""Nodes for admins: a list, one with its layout, and what can be done with it."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from mig_spawner.allocator.handlers.page.base import Did, PageHandler, Question
from mig_spawner.allocator.page.picture import Kind
from mig_spawner.wire.base import Document, Label, Text


class NodesQuery(Document):
    """Which page: the nodes after one."""

    after: Label = ""


class Draining(Document):
    """The form with which an admin drains a node. `message` is for those whose leases end."""

    message: Text = ""


class Nodes(PageHandler):
    """All nodes by name."""

    for_admins = True

    async def page(self, *names: str) -> None:
        query = self.asked(NodesQuery)
        view = await self.context.run(lambda: self.context.pages.nodes(query.after))
        await self.show("admin/nodes.html", view=view, query=query)


class Node(PageHandler):
    """One node: its GPUs, and its layout as it should be beside what it is."""

    for_admins = True
    template: ClassVar[str] = "admin/node.html"

    async def page(self, *names: str) -> None:
        view = await self.context.run(lambda: self.context.pages.node(names[0]))
        await self.show(self.template, view=view, kinds=tuple(Kind), **self.more())

    def more(self) -> dict[str, Any]:
        """What else the template needs."""
        return {}


class Cordon(Question, Node):
    """Granting nothing more on a node, after one question."""

    template = "admin/cordon.html"
    cordoned: ClassVar[bool] = True
    did: ClassVar[Did] = Did.CORDONED

    def more(self) -> dict[str, Any]:
        return {"cordoned": self.cordoned}

    async def act(self, *names: str) -> None:
        who = self.principal.who
        await self.call(lambda: self.context.nodes.cordon(names[0], self.cordoned, who=who))
        self.done(f"admin/nodes/{quote(names[0], safe='')}", self.did)


class Uncordon(Cordon):
    """Granting there again, after one question."""

    cordoned = False
    did = Did.UNCORDONED


class Drain(Question, Node):
    """Ending what is on a node, after one question."""

    template = "admin/drain.html"

    async def act(self, *names: str) -> None:
        who, message = self.principal.who, self.form(Draining).message.strip()
        await self.call(lambda: self.context.nodes.drain(names[0], message=message, who=who))
        self.done(f"admin/nodes/{quote(names[0], safe='')}", Did.DRAINED)
