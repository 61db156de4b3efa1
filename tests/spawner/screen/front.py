"""One address for hub and allocator, as a proxy gives it to browsers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import aiohttp
from aiohttp import web

SERVER: Final = "<!DOCTYPE html><title>A notebook</title>"
"""What stands for the page of a server."""
_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Front:
    """Passes on what is below the allocator's path to the allocator, everything else to the hub, whatever the domain. Servers of people
    are not passed on to: it answers for them.

    Attributes:
        port: where it listens.
        away: it breaks every connection, as a network does that is gone.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.away = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self, base: str, hub: str, allocator: str) -> None:
        """Pass on from now; all of it is below this path. The two URLs are without a path."""
        self._base, self._hub, self._allocator = base, hub, allocator
        self._thread.start()
        self._run(self._open())

    def break_off(self) -> None:
        """Nobody is answered any more, and who is being answered hears nothing more, until `away` is taken back."""
        self.away = True
        self._run(self._break())

    async def _break(self) -> None:
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport is not None:
                connection.transport.abort()

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self._client = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._client.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if self.away and request.transport is not None:
            request.transport.abort()
        if request.path.startswith(f"{self._base}/user/"):
            return web.Response(text=SERVER, content_type="text/html")
        to = self._allocator if request.path.startswith(f"{self._base}/services/mig/") else self._hub
        async with self._client.request(
            request.method,
            f"{to}{request.raw_path}",
            headers=request.headers,
            data=await request.read() or None,
            allow_redirects=False,
        ) as answer:
            back = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP:
                    back.headers.add(name, value)
            with suppress(ConnectionError):  # who asked has gone
                await back.prepare(request)
                async for chunk in answer.content.iter_any():
                    await back.write(chunk)
                await back.write_eof()
            return back
