"""An allocator as a process of its own, which can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from mig_spawner.wire.client import AllocatorClient
from tests.allocator.rig import SERVICE_TOKEN

START_S = 60


class AllocatorProcess:
    """`mig-spawner allocator` on a fixed port, so that it comes back where it was.

    Attributes:
        url: of the API.
    """

    def __init__(self, database: Path, tokens: dict[str, str], *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/services/mig"
        self._arguments = [f"--database-url=sqlite:///{database}", f"--bind-url={self.url}/", *arguments]
        self._environment = {
            **os.environ,
            "MIG_ALLOCATOR_TOKEN": SERVICE_TOKEN,
            "MIG_ALLOCATOR_AGENT_TOKENS": json.dumps(tokens),
        }
        self._log = database.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end(signal.SIGKILL)

    def client(self, token: str = SERVICE_TOKEN) -> AllocatorClient:
        return AllocatorClient(self.url, token, timeout_s=30)

    async def start(self) -> None:
        """Start it and wait until it serves."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "mig_spawner.cli",
                "allocator",
                *self._arguments,
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(START_S), httpx.AsyncClient(trust_env=False, verify=False) as http:
            while True:
                assert self._process.returncode is None, self.log()
                try:
                    if (await http.get(f"{self.url}/readyz")).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.05)

    async def end(self, number: signal.Signals) -> int | None:
        """Send it a signal, if it still runs, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            process.send_signal(number)
        return await process.wait()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")
