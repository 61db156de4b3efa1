"""The guard: a process that outlives the demo by a moment and leaves no process and no file behind.

    python -m mig_spawner.demo.guard DIRECTORY

It says when it is on guard and reads its standard input, which nobody writes to. When the demo ends, for whatever reason
and be it `kill -9`, the pipe closes; then the guard ends every process that carries the demo's mark and removes the
demo's directory. The mark is the environment variable `MIG_DEMO_DIR`, which each part gets and hands on to its own
children: kernels and terminals sit in sessions of their own, so a process group would not find them.

It needs `/proc` (Linux), and imports nothing but the standard library: one of these runs beside every demo.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

MARK: Final = "MIG_DEMO_DIR"
PATIENCE_S: Final = 3.0
"""How long marked processes may take to end by themselves."""


@contextlib.asynccontextmanager
async def on_guard(directory: Path) -> AsyncIterator[None]:
    """Have a guard for a directory; at the end wait until it has cleaned up."""
    guard: asyncio.subprocess.Process | None = None
    try:
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mig_spawner.demo.guard", str(directory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if guard.stdout is not None:
            await guard.stdout.readline()
        yield
    finally:
        if guard is None or guard.stdin is None:  # interrupted before there was one
            clean(str(directory))
        else:
            guard.stdin.close()
            await guard.wait()


def marked(directory: str) -> list[int]:
    """The processes that carry the mark of the demo in this directory, ourselves excepted."""
    needle = f"{MARK}={directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            # Processes come and go, and those of others may not be read: neither is ours.
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def clean(directory: str) -> None:
    """End every marked process (politely, then not), and remove the directory."""
    deadline = time.monotonic() + PATIENCE_S
    _signal(marked(directory), signal.SIGTERM)
    while (left := marked(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    # A process that is just being born may escape one look, not several.
    for _ in range(20):
        _signal(left, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.05)
        left = marked(directory)
    shutil.rmtree(directory, ignore_errors=True)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def main(directory: str) -> None:
    """Wait for the end of the demo, then clean."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("on guard", flush=True)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    clean(directory)


if __name__ == "__main__":
    main(sys.argv[1])
