"""Pods' processes on this machine: start, signal, and never leave one behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mig_spawner.testing.kube.kubelet import reaper
from mig_spawner.testing.kube.kubelet.reaper import descendants, kill_family, signal_process


class PodProcess:
    """A running process that leads a session of its own."""

    def __init__(self, process: asyncio.subprocess.Process, nursery: Nursery) -> None:
        self.pid = process.pid
        self._process = process
        self._nursery = nursery
        self._exit = asyncio.ensure_future(process.wait())

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    async def wait(self, timeout: float | None = None) -> int | None:
        """The exit code as a shell tells it (128 + signal); `None` if the process still runs after `timeout` seconds."""
        await asyncio.wait({self._exit}, timeout=timeout)
        if not self._exit.done():
            return None
        self._nursery.forget(self)
        code = self._exit.result()
        return 128 - code if code < 0 else code

    def terminate(self) -> None:
        """Asks the process, and its group, to end."""
        signal_process(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process and all that came from it."""
        if self.is_running:
            kill_family(self.pid)

    def family(self) -> list[int]:
        """The process ids of the process and its descendants."""
        return descendants(self.pid) if self.is_running else []


class Nursery:
    """Where processes are started. When it closes, or dies, they die."""

    def __init__(self) -> None:
        self._running: dict[int, PodProcess] = {}
        self._reaper: asyncio.subprocess.Process | None = None

    async def open(self) -> None:
        """Starts the helper that outlives us."""
        self._reaper = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", reaper.__file__, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )

    async def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
    ) -> PodProcess:
        """Starts a process whose output is added to `log`. Raises `OSError` when the program cannot be run."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environment),
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        self._tell(f"+ {process.pid}")
        started = PodProcess(process, self)
        self._running[process.pid] = started
        return started

    def forget(self, process: PodProcess) -> None:
        """The process has ended. What it left in its group is ended as well."""
        if self._running.pop(process.pid, None) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            self._tell(f"- {process.pid}")

    def kill_stragglers(self, family: Sequence[int]) -> None:
        """Kills those of a family that outlived their parent in sessions of their own, as Jupyter's kernels may.

        `family` was read a moment ago, so a process id that was given anew since then is very unlikely.
        """
        for pid in family[1:]:
            signal_process(pid, signal.SIGKILL)

    async def close(self) -> None:
        """Kills everything that still runs."""
        for process in list(self._running.values()):
            process.kill()
            await process.wait()
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            await self._reaper.wait()

    def _tell(self, line: str) -> None:
        if self._reaper is not None and self._reaper.stdin is not None and not self._reaper.stdin.is_closing():
            self._reaper.stdin.write(line.encode() + b"\n")
