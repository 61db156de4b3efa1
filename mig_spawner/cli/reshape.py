"""`mig-spawner reshape`."""

from __future__ import annotations

from datetime import datetime

import click

from mig_spawner.cli.option import Access, with_access, with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.show import moment_text, print_json, say, table
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.reshape import ReshapeApproval, ReshapeDocument, ReshapeRejection


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on, and only for type checkers
    """A point in time with its zone, as ISO 8601 writes it."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(
                f"{value!r} is no time with a zone. Write 2026-03-01T10:00+01:00, or with a Z for UTC.", param, ctx
            )
        return moment


@click.group()
def reshape() -> None:
    """Proposals to cut idle partitions anew for those who wait: list them, say yes or no. For admins."""


@reshape.command("list", cls=Verb)
@with_access
@with_json
def list_(access: Access, *, as_json: bool) -> None:
    """Show the proposals, those that hold, and the last that have ended."""
    with access.client() as client:
        found = client.reshapes()
    if as_json:
        print_json(found)
        return
    every = (*found.reshapes, *found.ended)
    table(
        ("PROPOSAL", "STATE", "WHAT", "NOW", "THEN", "WHY"),
        [(r.reshape_id, r.state, r.summary, " ".join(r.before), " ".join(r.after), r.stale or r.reason) for r in every],
    )
    say(f"{sum(r.state == 'proposed' for r in every)} to say yes or no to.")


@reshape.command(cls=Verb)
@click.argument("proposal")
@click.option("--from", "starts_at", type=Moment(), help="Apply it not before. [default: at once]")
@click.option("--until", "ends_at", type=Moment(), help="Take it back then, as soon as it is idle. [default: never]")
@with_access
@with_json
def approve(
    access: Access, proposal: str, starts_at: datetime | None, ends_at: datetime | None, *, as_json: bool
) -> None:
    """Say yes: cut it so now, or for a time. What is used is never touched."""
    if starts_at is not None and ends_at is not None and starts_at >= ends_at:
        raise InvalidRequest("--from is before --until.")
    with access.client() as client:
        _tell(client.approve(proposal, ReshapeApproval(starts_at=starts_at, ends_at=ends_at)), as_json=as_json)


@reshape.command(cls=Verb)
@click.argument("proposal")
@click.option("--message", default="", help="Why; kept in the audit.")
@with_access
@with_json
def reject(access: Access, proposal: str, message: str, *, as_json: bool) -> None:
    """Say no, or take back one that holds, as soon as nobody uses what it made."""
    with access.client() as client:
        _tell(client.reject(proposal, ReshapeRejection(message=message)), as_json=as_json)


def _tell(found: ReshapeDocument, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    say(found.summary)
    when = "" if found.starts_at is None else f", from {moment_text(found.starts_at)}"
    when += "" if found.ends_at is None else f" until {moment_text(found.ends_at)}"
    say(f"It is {found.state}{when}. {found.reason}".strip())
