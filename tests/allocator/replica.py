"""Allocators as processes of their own that start in a moment: forked from one that has imported everything."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import sys
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Final

from traitlets.config import Config

from mig_spawner.allocator.app import AllocatorApp
from tests.allocator.rig import SERVICE_TOKEN

HERE: Final = "127.0.0.1"


def context() -> ForkServerContext:
    """Where replicas come from."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(
        ["tests.allocator.replica", "psycopg", "alembic.command", "sqlalchemy.dialects.postgresql"]
    )
    return made


def serve(traits: dict[str, Any], log: str) -> None:
    """Be an allocator until killed."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    AllocatorApp(config=Config(AllocatorApp=traits)).start()


class Replica:
    """One of several allocators, on a port of its own that it comes back to.

    Attributes:
        kills: how often it was killed.
    """

    def __init__(
        self, made_by: ForkServerContext, database_url: str, tokens: dict[str, str], log: Path, **traits: Any
    ) -> None:
        with socket.socket() as probe:
            probe.bind((HERE, 0))
            self.port: int = probe.getsockname()[1]
        self._context = made_by
        self.log = log
        self.kills = 0
        self._traits = {
            "bind_url": f"http://{HERE}:{self.port}/",
            "database_url": database_url,
            "service_tokens": [SERVICE_TOKEN],
            "agent_tokens": tokens,
            **traits,
        }
        self._process: ForkServerProcess | None = None
        self.serves = False

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        self._process = await asyncio.to_thread(self._fork)
        while True:
            assert self._process.is_alive(), self.log.read_text()
            try:
                status, _ = await call(self.port, "GET", "/readyz")
            except OSError:
                status = 0
            if status == 200:
                self.serves = True
                return
            await asyncio.sleep(0.02)

    def _fork(self) -> ForkServerProcess:
        process = self._context.Process(target=serve, args=(self._traits, str(self.log)), daemon=True)
        process.start()
        return process

    async def kill(self) -> None:
        """`kill -9`."""
        self.serves = False
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.join)
            self.kills += 1


async def call(port: int, verb: str, path: str, body: str = "", token: str = SERVICE_TOKEN) -> tuple[int, bytes]:
    """A request on a connection of its own; its status and body.

    Raises:
        OSError: nobody answers, or the answer ends too early.
    """
    head = (
        f"{verb} {path} HTTP/1.1\r\nHost: {HERE}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(HERE, port)
    try:
        writer.write(head.encode() + body.encode())
        answer = await reader.read()
    finally:
        writer.close()
    head_, _, rest = answer.partition(b"\r\n\r\n")
    words = head_.split(maxsplit=2)
    if len(words) < 2 or b"Content-Length: %d" % len(rest) not in head_:
        raise ConnectionResetError("The answer ends too early.")
    return int(words[1]), rest
