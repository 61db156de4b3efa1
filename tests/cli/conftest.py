"""Fixtures of the command line's tests: a running allocator, and the verbs typed at it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mig_spawner.cli import main
from tests.allocator.conftest import clock, empty_ledger, make_rig, rig, rigs
from tests.allocator.rig import SERVICE_TOKEN, Rig

__all__ = ["clock", "empty_ledger", "make_rig", "rig", "rigs"]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("JUPYTERHUB_", "MIG_")):
            monkeypatch.delenv(name)


@dataclass
class Typed:
    """What a verb has printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line of JSON on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


Type = Callable[..., Awaitable[Typed]]


@pytest.fixture
def environment(rig: Rig) -> dict[str, str]:
    return {"MIG_ALLOCATOR_URL": rig.app.url, "MIG_ALLOCATOR_TOKEN": SERVICE_TOKEN, "JUPYTERHUB_USER": "alice"}


@pytest.fixture
def typed(environment: dict[str, str]) -> Type:
    """Run a verb, in a thread of this process, since it blocks."""

    async def run(*words: str, **changes: str) -> Typed:
        def invoke() -> Typed:
            result = CliRunner().invoke(main, words, env=environment | changes)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return Typed(result.exit_code, result.stdout, result.stderr)

        return await asyncio.to_thread(invoke)

    return run


@dataclass
class Program:
    """`mig-spawner` as a process of its own."""

    process: asyncio.subprocess.Process

    async def end(self) -> Typed:
        out, err = await asyncio.wait_for(self.process.communicate(), 60)
        assert self.process.returncode is not None
        return Typed(self.process.returncode, out.decode(), err.decode())


Start = Callable[..., Awaitable[Program]]


@pytest.fixture
async def start(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Start]:
    """Start a verb as a process; killed at the end if it still runs."""
    programs: list[Program] = []

    async def begin(*words: str, **changes: str) -> Program:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mig_spawner.cli", *words),
            env={**os.environ, **environment, **changes},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        programs.append(Program(process))
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.returncode is None:
            program.process.kill()
            await program.process.wait()
