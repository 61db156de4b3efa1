"""Scripts and styles, and the end of a login."""

from __future__ import annotations

from typing import Any, Final

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.web import StaticFileHandler

from mig_spawner.allocator.handlers.base import Handler
from mig_spawner.allocator.handlers.context import Context

_YEAR_S: Final = 365 * 86400
_HOUR_S: Final = 3600


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
