"""`mig-spawner queue`."""

from __future__ import annotations

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import moment_text, print_json, say, table
from mig_spawner.wire.queue import QueueEntry


@click.command(cls=Verb)
@with_access
@with_json
def queue(access: Access, *, as_json: bool) -> None:
    """Show who waits, for what, why, and until when. Names are shown to their owners and to admins."""
    with access.client() as client:
        found = client.queue()
    if as_json:
        print_json(found)
        return
    table(
        ("", "HOLDER", "ASKED", "STARTS", "WHY"),
        [
            (
                f"{entry.position}.",
                _holder(entry),
                " or ".join((entry.asked, *entry.alternatives)),
                _starts(entry),
                entry.why,
            )
            for entry in found.entries
        ],
    )
    say(f"{found.length} waiting.")


def _holder(entry: QueueEntry) -> str:
    holder = entry.holder
    name = "" if holder is None else f"{holder.user_name or holder.user_id}/{holder.server_name}"
    return f"{name} (you)" if entry.yours else name


def _starts(entry: QueueEntry) -> str:
    between = entry.starts_between
    if between is None:
        return f"cannot tell: {entry.cannot_tell or 'nothing is known of it'}"
    return f"{moment_text(between.earliest)} to {moment_text(between.latest)}"
