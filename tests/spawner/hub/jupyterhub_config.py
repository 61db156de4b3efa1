"""The hub of these tests: no proxy, anybody may log in, and short times."""

import asyncio
import os
import sys
from typing import Any, ClassVar

from jupyterhub.proxy import Proxy
from tornado import web

from mig_spawner.spawner import ending, lease, setup, spawner, sweep

# Seconds instead of minutes, in this process alone.
vars(lease)["RENEW_S"] = 1
vars(ending)["LATE_POD_MARGIN_S"] = 3
vars(sweep)["SWEEP_S"] = 2


class NoProxy(Proxy):  # type: ignore[misc]  # jupyterhub has no types
    """Keeps routes and proxies nothing: the tests ask hub and pods directly."""

    should_start = False
    routes: ClassVar[dict[str, Any]] = {}

    async def add_route(self, routespec: str, target: str, data: Any) -> None:
        if "/proxyless" in routespec:
            raise RuntimeError("The proxy does not take this route.")
        self.routes[routespec] = {"routespec": routespec, "target": target, "data": data}

    async def delete_route(self, routespec: str) -> None:
        self.routes.pop(routespec, None)

    async def get_all_routes(self) -> dict[str, Any]:
        return dict(self.routes)


def by_name(server: Any) -> None:
    """Some people have little patience, some have pods with little time, and some have servers that never answer."""
    if server.user.name.startswith("hasty"):
        server.queue_timeout = 4
    if server.user.name.startswith("short"):
        server.start_timeout = 6
    if server.user.name.startswith("mute"):
        server.cmd = [sys.executable, "-c", "import time; time.sleep(600)"]
        server.http_timeout = 3


def of_the_admin(server: Any, pod: Any) -> Any:
    """An admin's hook, which fails for some people."""
    if server.user.name.startswith("crashing"):
        raise RuntimeError("The hook is broken.")
    if server.user.name.startswith("barred"):
        raise web.HTTPError(403, "Not in this month.")
    return pod


class Lagging(spawner.MIGSpawner):
    """For some people the hub is too busy to see a cancelled start end in time."""

    async def _start(self) -> str:
        try:
            return await super()._start()
        except asyncio.CancelledError:
            if self.user.name.startswith("lagging"):
                await asyncio.sleep(1.5)
            raise


c = get_config()  # type: ignore[name-defined]  # noqa: F821
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {"root"}
c.JupyterHub.bind_url = c.JupyterHub.hub_bind_url = os.environ["TEST_HUB_URL"]
c.JupyterHub.db_url = "sqlite:///hub.sqlite"
c.JupyterHub.cookie_secret_file = "cookie_secret"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.allow_named_servers = True
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 2}
c.JupyterHub.services = [{"name": "tests", "api_token": os.environ["TEST_TOKEN"]}]
c.JupyterHub.load_roles = [
    {"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:servers", "read:metrics"]}
]
setup(c, allocator_url=os.environ["TEST_ALLOCATOR_URL"], allocator_token=os.environ["MIG_ALLOCATOR_TOKEN"])
c.JupyterHub.spawner_class = os.environ["TEST_SPAWNER_CLASS"] or Lagging
c.MIGSpawner.menu = [
    {"id": "none", "display_name": "No GPU", "none": True, "default": True},
    {"id": "small", "display_name": "Small slice", "profile": "1g.10gb", "mem_limit": "512M"},
    {"id": "brief", "display_name": "Small slice for a moment", "profile": "1g.10gb", "duration": 2},
    {"id": "all", "display_name": "All slices", "profile": "7g.80gb"},
    {"id": "huge", "display_name": "<b>Huge</b>", "profile": "7g.141gb"},
]
c.MIGSpawner.queue_timeout = 60
c.MIGSpawner.allocator_timeout = 3
c.KubeSpawner.namespace = os.environ["TEST_NAMESPACE"]
c.KubeSpawner.image = "notebook:1"
c.KubeSpawner.cmd = [sys.executable, os.environ["TEST_SERVER"]]
c.KubeSpawner.start_timeout = 30
c.KubeSpawner.http_timeout = 8
c.KubeSpawner.consecutive_failure_limit = 5
c.KubeSpawner.poll_interval = 1
c.KubeSpawner.poll_jitter = 0
c.KubeSpawner.k8s_api_request_timeout = 2
c.KubeSpawner.k8s_api_request_retry_timeout = 6
c.KubeSpawner.storage_pvc_ensure = False
c.KubeSpawner.pre_spawn_hook = by_name
c.KubeSpawner.modify_pod_hook = of_the_admin
