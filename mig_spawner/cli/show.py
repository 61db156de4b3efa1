"""What verbs print: tables for people, one line of JSON for programs, and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import click
from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.table import Table

from mig_spawner.cli.outcome import printable
from mig_spawner.wire.lease import LeaseDocument

_WIDE: Final = 400
"""Columns of a table that no terminal shows: nothing is cut or wrapped that a program may want to read."""

Tell = Callable[[str], None]


def print_json(document: BaseModel) -> None:
    click.echo(document.model_dump_json())


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print a table, the columns `right` aligned right. Without a terminal it has no lines, and nothing in it is wrapped."""
    console = _console(err=False)
    made = Table(*[], box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for head in heads:
        made.add_column(head, justify="right" if head in right else "left", no_wrap=not console.is_terminal)
    for row in rows:
        made.add_row(*("" if cell is None else printable(str(cell)) for cell in row))
    console.print(made)


def say(text: str) -> None:
    """A line for people, on stdout."""
    click.echo(printable(text))


@contextmanager
def progress() -> Iterator[Tell]:
    """Tell on stderr what is waited for: one line that changes on a terminal, a line for each change elsewhere."""
    console = _console(err=True)
    said = ""

    def plainly(text: str) -> None:
        nonlocal said
        if text != said:
            click.echo(printable(text), err=True)
        said = text

    if not console.is_terminal:
        yield plainly
        return
    with console.status("…") as status:
        yield lambda text: status.update(printable(text))


def lease_lines(lease: LeaseDocument) -> None:
    """One lease for people."""
    rows: list[tuple[str, object]] = [
        ("lease", lease.lease_id),
        ("holder", holder_text(lease)),
        ("state", lease.state),
        ("asked", lease.asked),
    ]
    placement = lease.placement
    if placement is not None:
        rows += [("got", got_text(lease)), ("node", placement.node)]
    if lease.device_uuid is not None:
        rows.append(("device", lease.device_uuid))
    if placement is not None and placement.expires_at is not None:
        rows.append(("expires", moment_text(placement.expires_at)))
    rows.append(("", lease.detail))
    table(("", ""), rows)


def holder_text(lease: LeaseDocument) -> str:
    holder = lease.holder
    return f"{holder.user_name or holder.user_id}/{holder.server_name}"


def got_text(lease: LeaseDocument) -> str:
    """What was granted, in a few words; empty before."""
    placement = lease.placement
    if placement is None:
        return ""
    return f"{placement.profile or 'whole GPU'} of {placement.model}, {placement.memory_mib / 1024:.1f} GiB"


def moment_text(moment: datetime | None) -> str:
    """A time of the allocator. It is not compared with the clock of this machine."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _console(*, err: bool) -> Console:
    stream = sys.stderr if err else sys.stdout
    return Console(
        stderr=err,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else _WIDE,
        soft_wrap=False,
    )
