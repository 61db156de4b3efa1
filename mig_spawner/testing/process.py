"""One part of the demo, or of a control plane, as a child process: started with a log file, watched, ended by its process group."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from mig_spawner.errors import DemoFailed

T = TypeVar("T")

GRACE_S: Final = 5.0
"""How long a part may take to end by itself."""
TAIL_LINES: Final = 20
WATCH_S: Final = 0.1
"""How often a running part is looked at."""


class Part:
    """A child process with a name for people and a log file.

    It leads a session of its own, so that Ctrl-C in the terminal reaches the demo alone and parts end in our order.

    Args:
        name: as shown, "the hub".
        argv: program and arguments; no secret among them, everybody on the machine can read it.
        env: its whole environment.
        log: output of all its lives is appended here.
        cwd: where it runs.
    """

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env)
        self._cwd = cwd
        self._process: asyncio.subprocess.Process | None = None
        self._ending = False

    def __repr__(self) -> str:
        return f"Part({self.name!r}, pid={self.pid})"

    @property
    def pid(self) -> int | None:
        """None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, or start it again."""
        self._ending = False
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._env,
                    cwd=self._cwd,
                    start_new_session=True,
                )
            except OSError as error:
                raise DemoFailed(f"{self.name} cannot be started: {error}.") from error

    async def fail(self) -> NoReturn:
        """Wait until it ends by itself; what `kill` and `stop` do is no such end, and a part that is started again is watched again.

        Raises:
            DemoFailed: when it has, with the last lines of its log.
        """
        while self.alive or self._ending:  # noqa: ASYNC110 - one process after another
            await asyncio.sleep(WATCH_S)
        status = None if self._process is None else self._process.returncode
        raise self.failure(f"{self.name} ended by itself ({describe_exit(status)}).")

    async def kill(self) -> None:
        """`kill -9`, as a crash would end it: the process alone, not what it started."""
        self._ending = True
        if self._process is not None and self.alive:
            self._process.kill()
            await self._process.wait()

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """SIGTERM, then SIGKILL to its process group after `grace_s`. No harm if it has ended or never began."""
        self._ending = True
        if self._process is None:
            return
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def failure(self, sentence: str) -> DemoFailed:
        """An error about this part that shows the end of its log."""
        tail = self.tail()
        return DemoFailed(
            f"{sentence} The last lines of its log:\n{tail}" if tail else f"{sentence} It logged nothing."
        )

    async def ready(self, check: Callable[[], Awaitable[T | None]], *, timeout_s: float) -> T:
        """Wait until `check` gives something; an early end of the process fails at once."""
        ready, failed = asyncio.create_task(until(check, timeout_s=timeout_s)), asyncio.create_task(self.fail())
        try:
            await asyncio.wait({ready, failed}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
            return ready.result()
        except TimeoutError as error:
            raise self.failure(f"{self.name} was not ready after {timeout_s:g} s.") from error
        finally:
            await cancelled(ready, failed)


def describe_exit(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "never started"
    if status < 0:
        return f"by signal {signal.Signals(-status).name}"
    return f"exit status {status}"


async def until(
    check: Callable[[], Awaitable[T | None]], *, timeout_s: float, every_s: float = 0.05, seen: str = ""
) -> T:
    """Ask again and again until the answer is neither None nor False.

    Raises:
        TimeoutError: after `timeout_s`, saying `seen`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await check()
                if answer is not None and answer is not False:
                    return answer
                await asyncio.sleep(every_s)
    except TimeoutError as error:
        raise TimeoutError(seen or f"nothing came within {timeout_s:g} s") from error


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, however they do."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
