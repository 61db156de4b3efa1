"""One address for hub and allocator, as a proxy gives it to browsers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

import aiohttp
from aiohttp import web

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Front:
    """Passes on what is below the allocator's path to the allocator, everything else to the hub, whatever the domain.

    Attributes:
        port: where it listens.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self, path: str, hub: str, allocator: str) -> None:
        """Pass on from now: what is below this path to the allocator. The two URLs are without a path."""
        self._path, self._hub, self._allocator = path, hub, allocator
        self._thread.start()
        self._run(self._open())

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
        to = self._allocator if request.path.startswith(self._path) else self._hub
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
            await back.prepare(request)
            async for chunk in answer.content.iter_any():
                await back.write(chunk)
            await back.write_eof()
            return back
