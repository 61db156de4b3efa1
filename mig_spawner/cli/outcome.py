"""How a verb ends: what the exit code says, and how errors become one sentence on stderr."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NoReturn

import click

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable, InvalidRequest, MigSpawnerError


class Outcome(IntEnum):
    """Exit codes. 1 is left to faults of ours, which show a traceback, and 2 to a wrong command line."""

    DONE = 0
    """It was done."""
    USAGE = 2
    """The command line cannot be understood."""
    REFUSED = 3
    """The allocator said no; the sentence says why."""
    UNAVAILABLE = 4
    """No usable answer of the allocator. What was asked may or may not have been done."""
    WAITING = 5
    """The lease is not ready yet, and the time to wait is over. It keeps its place in the queue."""
    ENDED = 6
    """The lease has ended, so it will never be ready."""
    WRONG = 7
    """What was checked is not as it should be."""
    NO_SLICE = 125
    """`run`: there was no slice to run the command on."""
    NOT_EXECUTABLE = 126
    """`run`: the command is there, but cannot be started."""
    NOT_FOUND = 127
    """`run`: there is no such command."""


EPILOG: Final = (
    "Exit codes: 0 done, 2 wrong command line, 3 the allocator said no, 4 the allocator does not answer, "
    "5 still waiting, 6 the lease has ended, 7 what was checked is wrong. See docs/cli.md."
)


class Failed(MigSpawnerError):
    """Ends a verb with a sentence on stderr and a code."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


class Verb(click.Command):
    """A command whose errors become sentences and exit codes: use it as `@click.command(cls=Verb)`."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidRequest as error:
            raise click.UsageError(str(error), ctx) from error
        except Failed as error:
            _end(ctx, error, error.outcome)
        except AllocatorRefused as error:
            _end(ctx, error, Outcome.REFUSED)
        except AllocatorUnavailable as error:
            _end(ctx, error, Outcome.UNAVAILABLE)


def _end(ctx: click.Context, error: MigSpawnerError, outcome: Outcome) -> NoReturn:
    click.echo(f"mig-spawner: {printable(str(error))}", err=True)
    ctx.exit(int(outcome))


def printable(text: str) -> str:
    """A text from elsewhere, without what could steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
