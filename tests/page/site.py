"""The allocator's pages without a hub of their own: a running allocator, people who are logged in, and a ledger with something on it.

The hub here is a small server that says who somebody is, so that every state of a lease can be had at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
from aiohttp import web
from jupyterhub.httpclient import JupyterHubHTTPClient
from playwright.async_api import Browser, Page
from tornado.web import create_signed_value

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain.lease import PodFate
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest
from mig_spawner.wire.node import Health
from tests.allocator.conftest import rigs
from tests.allocator.rig import Clock, Rig

ACCESS: Final = "access:services!service=mig"
SCOPES: Final = {
    "ann": [ACCESS, "custom:mig:reserve!user=ann"],
    "bob": [ACCESS, "custom:mig:reserve!user=bob"],
    "eve": [ACCESS],
    "root": [ACCESS, "custom:mig:admin"],
}


async def _user(request: web.Request) -> web.Response:
    """`GET /hub/api/user` as a hub answers it; somebody's token is their name."""
    name = request.headers["Authorization"].partition(" ")[2]
    if name not in SCOPES:
        return web.json_response({"status": 403, "message": "Forbidden"}, status=403)
    return web.json_response({"name": name, "kind": "user", "admin": False, "groups": ["lab"], "scopes": SCOPES[name]})


@dataclass
class Site:
    """A running allocator and a browser in which its people are logged in."""

    rig: Rig
    stack: AsyncExitStack = field(repr=False)
    requested: list[str] = field(default_factory=list)

    def cookie(self, who: str) -> str:
        """What the OAuth dance would have set, once for each window."""
        return create_signed_value(self.rig.app.desk.store.secret("cookie"), "service-mig", who).decode()

    def http(self, who: str = "root") -> httpx.AsyncClient:
        """Somebody who is logged in, without a browser."""
        cookies = {"service-mig": self.cookie(who)} if who else {}
        headers = {"Accept": "text/html"}
        return httpx.AsyncClient(
            base_url=self.rig.app.url, cookies=cookies, headers=headers, trust_env=False, timeout=30, verify=False
        )

    async def page(self, browser: Browser, who: str = "root", *, javascript: bool = True, **options: Any) -> Page:
        """A new window of somebody who is logged in."""
        context = await browser.new_context(java_script_enabled=javascript, base_url=self.rig.app.url, **options)
        self.stack.push_async_callback(context.close)
        await context.add_cookies([{"name": "service-mig", "value": self.cookie(who), "url": self.rig.app.url}])
        page = await context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: self.requested.append(request.url))
        return page

    async def own(self, name: str, server: str = "", **wanted: Any) -> LeaseDocument:
        """A lease that a person has asked for."""
        holder = HolderDocument(user_id=f"name:{name}", server_name=server, user_name=name)
        return await self.rig.hub.acquire(LeaseRequest(holder=holder, **wanted))


@asynccontextmanager
async def site(folder: Path, now: datetime | None = None, **traits: Any) -> AsyncIterator[Site]:
    """An allocator with an empty ledger. Set $JUPYTERHUB_API_TOKEN to `SERVICE_TOKEN` before."""
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_get("/hub/api/user", _user)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(JupyterHubHTTPClient.loop_instance().close)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        clock = Clock()
        clock.now = now or clock.now
        empty = folder / "empty.sqlite"
        store = SQLStore(f"sqlite:///{empty}")
        store.open()
        store.close()
        make = await stack.enter_async_context(rigs(folder, clock, empty))
        rig = await make(hub_api_url=f"http://127.0.0.1:{runner.addresses[0][1]}/hub/api", **traits)
        yield Site(rig, stack)


async def furnish(site: Site, server: str = "<b>x</b>") -> dict[str, LeaseDocument]:
    """Three nodes with every kind of piece that a map can show, and somebody who waits."""
    rig = site.rig
    node = await rig.node("n1", ("a100-80gb", "a100-80gb", "h100-80gb"))
    node.simulated = True
    await node.report()
    leases = {}
    leases["active"] = await site.own("ann", accelerator_partition_type="2g.20gb", duration=7200)
    leases["whole"] = await site.own("bob", "train")
    await node.turn()
    leases["active"] = await rig.hub.renew(leases["active"].lease_id)
    await rig.hub.renew(leases["whole"].lease_id)
    leases["ready"] = await site.own("ann", "other", accelerator_partition_type="1g.10gb")
    leases["ending"] = await site.own("bob", accelerator_partition_type="3g.40gb")
    await node.turn()
    await rig.hub.renew(leases["ending"].lease_id)
    await rig.hub.release(leases["ending"].lease_id, LeaseRelease(pod=PodFate.UNKNOWN))
    leases["making"] = await site.own("dora", accelerator_partition_type="1g.10gb")
    fixed = await rig.node("n2", ("a30", "a30"), report=False, dynamic=False)
    fixed.boards[0].add("1g.6gb", 0)
    fixed.boards[0].add("1g.6gb", 1, processes=1)
    fixed.boards[0].add("2g.12gb", 2, processes=None)
    fixed.boards[1].health = Health.BAD
    await fixed.report()
    leases["queued"] = await site.own("fay", server, accelerator_partition_type="7g.80gb")
    done = await site.own("ann", "done", accelerator_partition_type="1g.10gb")
    rig.clock.move(5)
    for each in (node, fixed):
        await each.turn()
    await rig.hub.release(done.lease_id, LeaseRelease(pod=PodFate.GONE))
    await node.turn()
    return leases
