"""`mig-spawner menu`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from pydantic import ValidationError

from mig_spawner.cli.option import Access, with_optional_access
from mig_spawner.cli.outcome import Failed, Outcome, Verb
from mig_spawner.cli.show import say, table
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.check import Offered, Severity, check, offered_by, offered_on, without_entry
from mig_spawner.wire.node import NodeReport

_READERS: Final[tuple[Callable[[bytes], list[Offered]], ...]] = (
    lambda content: offered_by(Availability.model_validate_json(content)),
    lambda content: offered_on(NodeReport.model_validate_json(content)),
)


@click.group()
def menu() -> None:
    """Check a menu before it holds."""


@menu.command("check", cls=Verb)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@with_optional_access
@click.option(
    "--inventory",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare with this file instead of asking the allocator: what `mig-spawner availability --json` prints, or an agent's report.",
)
@click.option("--syntax", is_flag=True, help="Read the file only, without comparing it with any GPU.")
def check_(file: Path, access: Callable[[], Access], inventory: Path | None, *, syntax: bool) -> None:
    """Read a menu file and compare it with the GPUs that there are. Exits with 7 when something on it can never be had."""
    found = _read(file)
    many = f"{len(found)} entries, {len(found.quotas)} limits"
    if syntax:
        say(f"{file}: {many}. Not compared with any GPU.")
        return
    offered = _offered(access, inventory)
    findings = check(found, offered, datetime.now(UTC))
    if findings:
        table(("ENTRY", "IS", "WHY", "WRITE INSTEAD"), [(f.entry, f.severity, f.text, f.instead) for f in findings])
    unused = without_entry(found, offered)
    if unused:
        say(f"The GPUs here offer more that is not on the menu: {', '.join(unused)}.")
    wrong = sum(finding.severity is Severity.ERROR for finding in findings)
    if wrong:
        raise Failed(f"{file}: {wrong} of {many} can never be had.", Outcome.WRONG)
    say(f"{file}: {many}. Everything on it can be had here.")


@menu.command(cls=Verb)
def schema() -> None:
    """Print the JSON schema of menu files, for editors."""
    from mig_spawner.wire.menu.schema import menu_schema

    click.echo(json.dumps(menu_schema(), indent=2))


def _read(file: Path) -> Menu:
    try:
        from mig_spawner.wire.menu.file import read_menu
    except ModuleNotFoundError as error:
        raise click.ClickException("Reading YAML needs the package pyyaml: pip install pyyaml") from error
    try:
        return read_menu(str(file))
    except InvalidRequest as error:
        raise Failed(str(error), Outcome.WRONG) from error


def _offered(access: Callable[[], Access], inventory: Path | None) -> list[Offered]:
    if inventory is not None:
        return _of_file(inventory)
    with access().client() as client:
        return offered_by(client.availability())


def _of_file(path: Path) -> list[Offered]:
    content = path.read_bytes()
    for read in _READERS:
        try:
            return read(content)
        except ValidationError:
            continue
    raise click.UsageError(f"{path} is neither an answer of `availability --json` nor an agent's report.")
