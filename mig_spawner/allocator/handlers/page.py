"""The page for people: who am I, what do I hold, what is free."""

from __future__ import annotations

from typing import Any

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.web import StaticFileHandler

from mig_spawner.allocator.auth import Role
from mig_spawner.allocator.handlers.base import Handler
from mig_spawner.allocator.handlers.context import Context
from mig_spawner.allocator.refusal import refusal
from mig_spawner.wire.problem import ProblemCode

_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_YEAR_S = 365 * 86400
_HOUR_S = 3600


class Page(Handler):
    """Rendered here, live nowhere: it works without JavaScript."""

    async def get(self) -> None:
        if self.context.auth.hub is None:
            raise refusal(
                ProblemCode.UNAUTHENTICATED, "This allocator has no token of its own at a hub: nobody can log in."
            )
        self.caller = caller = await self.context.auth.principal(self)
        if caller is None:
            self.redirect(self.get_login_url())
            return
        if not caller.may(Role.SERVICE, Role.READ):
            raise refusal(
                ProblemCode.FORBIDDEN, f"{caller.who} may not see this. An admin can grant {Role.READ.value}."
            )
        user_name = None if caller.sees_all else caller.person
        availability = await self.context.run(self.context.leases.availability)
        held = await self.context.run(lambda: self.context.leases.leases(user_name=user_name))
        self.set_header("Content-Security-Policy", _POLICY)
        template = self.context.templates.get_template("index.html")
        await self.finish(
            template.render(
                who=caller.person or caller.who,
                sees_all=caller.sees_all,
                availability=availability,
                leases=held.leases,
                prefix=self.context.prefix,
            )
        )


class OAuthCallback(Handler, HubOAuthCallbackHandler):  # type: ignore[misc]  # jupyterhub has no types
    """The end of the OAuth dance. Who is already logged in is not asked for synchronously."""

    def get_current_user(self) -> Any:
        return None


class Static(Handler, StaticFileHandler):
    """Scripts and styles. With `?v=…` of their content they may be kept for a year, without for an hour."""

    def initialize(self, context: Context, path: str) -> None:  # type: ignore[override]
        Handler.initialize(self, context)
        StaticFileHandler.initialize(self, path)

    def get_cache_time(self, path: str, modified: Any, mime_type: str) -> int:
        return _YEAR_S if "v" in self.request.arguments else _HOUR_S

    def set_extra_headers(self, path: str) -> None:
        keep = (
            f"public, max-age={_YEAR_S}, immutable" if "v" in self.request.arguments else f"public, max-age={_HOUR_S}"
        )
        self.set_header("Cache-Control", keep)
        self.set_header("X-Content-Type-Options", "nosniff")
