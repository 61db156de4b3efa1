"""Parts of the demo: start, log, crash, stop, and what the person is told."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mig_spawner.errors import DemoFailed
from mig_spawner.testing.process import Part, describe_exit, until
from tests.demo.command import runs

MakePart = Callable[[str], Part]


@pytest.fixture
async def make_part(tmp_path: Path) -> AsyncIterator[MakePart]:
    async with AsyncExitStack() as stack:

        def make(code: str) -> Part:
            part = Part("the part", [sys.executable, "-c", code], dict(os.environ), tmp_path / "part.log", tmp_path)
            stack.push_async_callback(part.stop, 1)
            return part

        yield make


async def logged(part: Part, text: str) -> None:
    async def look() -> bool:
        return text in part.tail()

    await until(look, timeout_s=20)


SLEEP = "import time; print('up', flush=True); time.sleep(600)"


async def test_a_part_logs_and_can_be_started_again(make_part: MakePart) -> None:
    part = make_part(SLEEP)
    await part.start()
    await logged(part, "up")
    first = part.pid
    assert first is not None
    await part.kill()
    assert not runs(first)
    await part.start()
    assert part.alive
    assert part.pid != first


async def test_stop_ends_what_the_part_started_too(make_part: MakePart) -> None:
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    part = make_part(child + "print('child', p.pid, flush=True); p.wait()")
    await part.start()
    await logged(part, "child")
    pid = int(part.tail().split()[-1])
    assert runs(pid)
    await part.stop()

    async def gone() -> bool:
        return not runs(pid)

    await until(gone, timeout_s=20)


async def test_a_part_that_ignores_sigterm_is_killed(make_part: MakePart) -> None:
    part = make_part("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP)
    await part.start()
    await logged(part, "up")
    await part.stop(grace_s=0.2)
    assert not part.alive


async def test_stop_is_harmless_before_and_after_a_life(make_part: MakePart) -> None:
    part = make_part("")
    await part.stop()
    await part.start()
    await part.stop()
    await part.stop()


async def test_a_part_that_ends_early_shows_the_end_of_its_log(make_part: MakePart) -> None:
    part = make_part("print('the cause\\nof it all'); raise SystemExit(3)")
    await part.start()

    async def never() -> None:
        return None

    with pytest.raises(DemoFailed, match=r"the part ended by itself \(exit status 3\)(?s:.*)the cause\nof it all"):
        await part.ready(never, timeout_s=20)


async def test_a_part_that_is_never_ready_is_said_so(make_part: MakePart) -> None:
    part = make_part(SLEEP)
    await part.start()
    await logged(part, "up")

    async def never() -> None:
        return None

    with pytest.raises(DemoFailed, match=r"the part was not ready after 0\.1 s(?s:.*)up"):
        await part.ready(never, timeout_s=0.1)


async def test_a_program_that_is_missing_is_said_so(tmp_path: Path) -> None:
    part = Part("the part", [str(tmp_path / "missing")], {}, tmp_path / "part.log", tmp_path)
    with pytest.raises(DemoFailed, match=r"the part cannot be started: .*No such file"):
        await part.start()


@pytest.mark.parametrize(
    ("status", "words"), [(0, "exit status 0"), (-9, "by signal SIGKILL"), (None, "never started")]
)
def test_exits_are_told_in_words(status: int | None, words: str) -> None:
    assert describe_exit(status) == words


async def test_an_end_that_was_meant_is_no_failure_and_a_crash_after_it_is(make_part: MakePart) -> None:
    part = make_part(SLEEP)
    await part.start()
    failure = asyncio.create_task(part.fail())
    await part.kill()
    await part.start()
    await logged(part, "up")
    assert not failure.done()
    assert part.pid is not None
    os.kill(part.pid, signal.SIGKILL)
    with pytest.raises(DemoFailed, match=r"the part ended by itself \(by signal SIGKILL\)"):
        await failure
