"""The guard: nothing is left when the demo ends, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.command import runs, wait_for

# A stand-in for the demo: real guard, real children, one of them in a session of its own as kernels are.
SUPERVISOR = """
import json, os, pathlib, subprocess, sys, time
from mig_spawner.demo.guard import MARK
folder = pathlib.Path(sys.argv[1])
(folder / "homes").mkdir()
(folder / "homes" / "file").write_text("x")
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
guard = subprocess.Popen([sys.executable, "-m", "mig_spawner.demo.guard", str(folder)], **pipes)
guard.stdout.readline()
env = {**os.environ, MARK: str(folder)}
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
patient = "import time; time.sleep(600)"
children = [
    subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=own_session)
    for code, own_session in ((patient, True), (patient, False), (stubborn, True))
]
print(json.dumps({"guard": guard.pid, "children": [c.pid for c in children]}), flush=True)
time.sleep(600)
"""

Started = tuple[subprocess.Popen[str], int, list[int]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "demo"
    folder.mkdir()
    return folder


@pytest.fixture
def supervisor(folder: Path) -> Iterator[Started]:
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())
    yield process, pids["guard"], pids["children"]
    process.kill()
    process.wait()
    process.stdout.close()
    for pid in (pids["guard"], *pids["children"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_demo_is_killed_no_process_and_no_file_is_left(
    supervisor: Started, folder: Path, how: signal.Signals
) -> None:
    process, guard, children = supervisor
    assert all(runs(pid) for pid in (guard, *children))
    os.killpg(process.pid, how)
    wait_for(lambda: not any(runs(pid) for pid in (guard, *children)))
    assert not folder.exists()


def test_the_guard_leaves_others_alone(supervisor: Started) -> None:
    process, guard, _ = supervisor
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={"MIG_DEMO_DIR": "/elsewhere"})
    try:
        process.kill()
        wait_for(lambda: not runs(guard))
        assert runs(other.pid)
    finally:
        other.kill()
        other.wait()


def test_ctrl_c_in_the_terminal_does_not_end_the_guard_before_its_work(supervisor: Started, folder: Path) -> None:
    process, guard, children = supervisor
    os.kill(guard, signal.SIGINT)
    os.kill(guard, signal.SIGTERM)
    process.kill()
    wait_for(lambda: not any(runs(pid) for pid in (guard, *children)))
    assert not folder.exists()
