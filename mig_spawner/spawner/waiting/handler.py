"""The hub's side of the room: plain forms for whoever waits, which work without scripts, for named servers, and for admins.

JupyterHub's own button on the page of a pending start stops the default server of whoever looks at it, and needs a script. Only the
hub can cancel a start, so this is a page of the hub and not of the allocator. JupyterHub calls `extra_handlers` deprecated in favour
of services, which cannot do this.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import url_escape_path, url_path_join
from tornado import web

from mig_spawner.spawner.error import SpawnRefused

PATH: Final = "mig/waiting"
SCRIPT: Final = "mig/static/waiting.js"
_STATIC: Final = Path(__file__).parent / "static"
_CANCEL_S: Final = 8.0
"""How long a start may take to notice that it was cancelled."""


class WaitingHandler(BaseHandler):  # type: ignore[misc]  # jupyterhub has no types
    """One person's server that is on its way."""

    # As the hub's own API: who may stop this server may cancel its start, or have it start as something else.
    @web.authenticated
    @needs_scope("delete:servers")  # type: ignore[untyped-decorator]
    async def post(self, user_name: str, server_name: str = "") -> None:
        user = self.find_user(user_name)
        if user is None or server_name not in user.spawners:
            raise web.HTTPError(404)
        spawner = user.spawners[server_name]
        here = url_path_join(
            self.hub.base_url,
            "spawn-pending",
            user.escaped_name,
            *([url_escape_path(server_name)] if server_name else []),
        )
        if spawner.pending != "spawn":
            self.redirect(here)  # it is open, or over: the hub says which
            return
        match self.get_body_argument("act", ""):
            case "cancel":
                await self._cancel(user, server_name)
                self.redirect(
                    url_path_join(self.hub.base_url, "home" if user.name == self.current_user.name else "admin")
                )
            case "change":
                await _change(spawner, self.get_body_argument("mig_choice", ""))
                self.redirect(here)
            case _:
                raise web.HTTPError(400, "Say what to do: act is cancel or change.")

    async def _cancel(self, user: Any, server_name: str) -> None:
        spawner = user.spawners[server_name]
        # As the hub's own API does it; it has no public way.
        if (future := spawner._spawn_future) is not None:  # noqa: SLF001
            future.cancel()
            await asyncio.wait([future], timeout=_CANCEL_S)
        if not spawner.pending:
            await self.stop_single_user(user, server_name)


async def _change(spawner: Any, choice: str) -> None:
    change = getattr(spawner, "mig_change", None)
    if change is None:
        raise web.HTTPError(400, "This server does not wait for a GPU.")
    try:
        await change(choice)
    except SpawnRefused as error:
        raise web.HTTPError(400, error.message) from error


def handlers() -> list[tuple[Any, ...]]:
    """For `c.JupyterHub.extra_handlers`: what the buttons of the waiting room call, and its script."""
    return [
        (rf"/{PATH}/([^/]+)", WaitingHandler),
        (rf"/{PATH}/([^/]+)/([^/]+)", WaitingHandler),
        (r"/mig/static/(waiting\.js)", web.StaticFileHandler, {"path": str(_STATIC)}),
    ]


def has_handlers(hub: Any) -> bool:
    """This hub was configured with `handlers()`."""
    return any(WaitingHandler in handler for handler in getattr(hub, "extra_handlers", ()))
