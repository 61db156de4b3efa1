"""A wire between client and allocator that fails as a test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\nConnection: close\r\n\r\nbusy\n"


class Fault(StrEnum):
    """What happens to one connection."""

    BUSY = "answered with 503 by a proxy, without asking"
    DROPPED = "closed before a request is read"
    CUT = "the allocator did it, and its answer is cut in the middle"
    LOST = "the allocator did it, and nothing of its answer arrives"


class BadWire:
    """Passes connections on, one after the other; each takes the next of the `faults`, and without one all is well.

    Attributes:
        url: of the API, through the wire.
        connections: how many came.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._there = (parts.hostname, parts.port)
        self._path = parts.path.rstrip("/")
        self.faults: deque[Fault] = deque()
        self.connections = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[BadWire]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._path}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def cut(self) -> None:
        """Cut every connection there is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        fault = self.faults.popleft() if self.faults else None
        try:
            with contextlib.suppress(ConnectionError):
                await self._serve(fault, reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _serve(self, fault: Fault | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if fault is Fault.DROPPED:
            return
        if fault is Fault.BUSY:
            await reader.read(65536)
            writer.write(_BUSY)
            await writer.drain()
            return
        there_reader, there_writer = await asyncio.open_connection(*self._there)
        up = asyncio.create_task(_pass_on(reader, there_writer))
        try:
            if fault is None:
                await _pass_on(there_reader, writer)
            else:
                answer = await there_reader.readuntil(b"\r\n\r\n") + await there_reader.read(20)
                writer.write(answer if fault is Fault.CUT else b"")
                await writer.drain()
        finally:
            up.cancel()
            there_writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
