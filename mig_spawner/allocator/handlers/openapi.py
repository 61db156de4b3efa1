"""`api/v1/openapi.json`: the API for programs."""

from __future__ import annotations

from mig_spawner.allocator.handlers.base import Handler

KEEP_S = 300


class OpenAPI(Handler):
    """The OpenAPI document. Open to all, pages of other origins too: it tells nothing that the documentation does not."""

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Access-Control-Allow-Origin", "*")
        self.set_header("Cache-Control", f"public, max-age={KEEP_S}")

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(self.settings["openapi"]())  # type: ignore[unused-awaitable]
