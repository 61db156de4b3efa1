"""A child that dies with its parent, even when that is killed with -9: the kernel sends it SIGKILL.

    argv = tethered(["/path/to/program", "--flag"])

A few lines of Python ask the kernel for it (`PR_SET_PDEATHSIG`) and then become the program, which keeps the pid. It
holds for the thread that starts the child: it must live as long. Linux only; elsewhere the child is simply started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_SHIM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def tethered(argv: Sequence[str | Path]) -> list[str]:
    """The command line that starts this one, whose program must be a path."""
    words = [str(word) for word in argv]
    if sys.platform != "linux":
        return words
    return [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *words]
