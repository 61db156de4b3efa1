"""Looking at real processes, and running the command as a person would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def wait_for(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Wait until a condition holds; the test fails if it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"the condition never held within {timeout_s} s"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Command:
    """`mig-spawner …` as a child process with its own temporary folder, to see what it leaves there."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("COV_", "COVERAGE_", "PYTEST_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "mig_spawner.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**env, "TMPDIR": str(self.tmp), "PYTHONUNBUFFERED": "1", "COLUMNS": "160"},
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, timeout_s: float = 60) -> tuple[int, str]:
        """Exit status and everything it wrote."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=timeout_s)
        return process.returncode, output

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def left_processes(self) -> list[str]:
        """Processes that belong to a demo of this folder: its parts carry its folder in their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    environ, line = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(self.tmp).encode() in environ + line and runs(int(entry.name)):
                    found.append(line.replace(b"\0", b" ").decode(errors="replace").strip())
        return found

    def left_files(self) -> list[str]:
        return sorted(str(p.relative_to(self.tmp)) for p in self.tmp.iterdir())

    def wait_until_clean(self) -> None:
        """Wait until no process and no file is left; the test fails if something stays."""
        wait_for(lambda: not self.left_processes() and not self.left_files())
