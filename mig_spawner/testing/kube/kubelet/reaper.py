"""Ends whole families of processes, also when the kubelet itself is gone.

As a program it stands beside a kubelet: it is told on its standard input which processes run (`+ pid`, `- pid`, one a
line) and, when the input ends, kills those that are left with all their children. The input ends however the kubelet
ends, so a SIGKILL leaves no notebook behind. It uses the standard library alone, to start fast.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The process and all its children's children, in sessions of their own too; parents first.

    Where there is no `/proc` only the process itself is known.
    """
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name, which may hold anything) state ppid ...
            parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    family = [pid]
    for member in family:
        family.extend(children.get(member, []))
    return family


def signal_process(pid: int, number: int) -> None:
    """Sends a signal to the group that the process leads, and to the process; it may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_family(pid: int) -> None:
    """SIGKILL for a process, its group and all its descendants."""
    for member in descendants(pid):
        signal_process(member, signal.SIGKILL)


def main() -> None:
    running: set[int] = set()
    for line in sys.stdin:
        sign, pid = line.split()
        (running.add if sign == "+" else running.discard)(int(pid))
    for pid in running:
        kill_family(pid)


if __name__ == "__main__":
    main()
