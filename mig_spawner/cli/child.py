"""A command as a child: what reaches us reaches it, and its end is ours."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final

FORWARDED: Final = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)
_ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_BY_KERNEL: Final = 0x80
"""`si_code` of a signal that a terminal sends: to the whole foreground group, so the child has it already."""
_LOOK_S: Final = 0.5


class Interrupted(BaseException):
    """A signal asks us to end, while there is no child yet. Not an error, so that nothing takes it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Signals that ask for an end raise `Interrupted`, so that whatever was leased is given back."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Signals wait: they interrupt nothing in here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start(program: str, command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Start a command, which gets signals as any other does; its process id.

    Raises:
        OSError: it cannot be started.
    """
    # Python ignores these two for itself.
    return os.posix_spawn(program, command, environment, setsigmask=(), setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))


def follow(pid: int, end: Event, grace_s: float) -> int:
    """Pass signals on until the child has ended; its exit code as a shell tells it. To be called while signals are held back.

    Args:
        end: when it is set, the child is asked to end, and killed `grace_s` seconds later.
    """
    asked_at: float | None = None
    while True:
        got = signal.sigtimedwait({*FORWARDED, signal.SIGCHLD}, _LOOK_S)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if got is not None and got.si_signo != signal.SIGCHLD and got.si_code != _BY_KERNEL:
            os.kill(pid, got.si_signo)
        if end.is_set() and asked_at is None:
            asked_at = time.monotonic()
            os.kill(pid, signal.SIGTERM)
        elif asked_at is not None and time.monotonic() - asked_at > grace_s:
            os.kill(pid, signal.SIGKILL)
