"""Ctrl-C while nothing but waiting is done."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ABORTED = 1
"""The exit code, as click's own."""


@contextmanager
def ends_at_once() -> Iterator[None]:
    """End the process at the first Ctrl-C. For verbs that leave nothing to be tidied up.

    Python raises KeyboardInterrupt wherever it happens to be: in a finalizer, where it is lost, or between taking a lock of the HTTP
    client and letting go of it, so that closing the client waits for ever. One that comes just before a long poll is seen after it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may have handlers, and only it gets KeyboardInterrupt
        return
    before = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: Any) -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, b"\nAborted!\n")
    os._exit(ABORTED)
