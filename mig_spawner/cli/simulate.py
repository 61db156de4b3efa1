"""`mig-spawner simulate`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click

from mig_spawner.cli.option import with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.today import layouts_of_today
from mig_spawner.domain.layout.reader import MAX_GPUS
from mig_spawner.errors import InvalidRequest

_PATH = click.Path(path_type=Path)


@click.command(cls=Verb)
@click.option(
    "--scenario", "scenarios", multiple=True, help="A setting by name, such as steady-notebook-0.9; repeatable."
)
@click.option("--list", "list_", is_flag=True, help="List the scenarios and end.")
@click.option("--trace", type=_PATH, help="Your own arrivals instead, as CSV (arrival,duration,profile,…).")
@click.option("--from-ledger", "ledger", metavar="URL", help="What a ledger remembers: sqlite:////data/mig.sqlite, …")
@click.option("--gpu", "gpus", multiple=True, metavar="MODEL:COUNT", help="GPUs; repeatable. [default: a100-80gb:100]")
@click.option(
    "--policy", "policies", multiple=True, help="Where instances are cut; repeatable. [default: four of them]"
)
@click.option(
    "--layout", "layouts", multiple=True, help="dynamic, all-1g or all-balanced; repeatable. [default: dynamic]"
)
@click.option(
    "--today", type=_PATH, help="The layouts of this file as well (ours or mig-parted's), as if every node had them."
)
@click.option("--per-node", type=click.IntRange(1, MAX_GPUS), default=8, show_default=True,
              help="GPUs of a node, for --today.")  # fmt: skip
@click.option(
    "--rule",
    "rules",
    multiple=True,
    help="Who waits: refuse, in-order, queue or queue-agreed; repeatable. [default: refuse]",
)
@click.option(
    "--quota", "quotas", multiple=True, metavar="GROUP=GPUS", help="The most a group has at once; repeatable."
)
@click.option("--menu", type=_PATH, help="A menu whose quotas hold for the people and groups of a trace.")
@click.option("--keep-apart", multiple=True, metavar="GROUP,GROUP", help="Groups that never share a GPU; repeatable.")
@click.option(
    "--knows",
    multiple=True,
    type=click.Choice(["demand", "estimate", "nothing"]),
    help="What policies know of the demand: all, what has arrived so far, or nothing; repeatable. [default: demand]",
)
@click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each.")
@click.option(
    "--span", type=click.FloatRange(1, 10_000), default=100, show_default=True, help="Hours of a steady scenario."
)
@click.option("--rehearsed", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True,
              help="Arrivals in the rehearsals of auto.")  # fmt: skip
@click.option("--keep", type=_PATH, help="Keep each run in this file, and go on from those it holds.")
@click.option("--no-bound", is_flag=True, help="Leave out what would be if all could be moved.")
@with_json
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for spreadsheets.")
@click.option("--output", type=_PATH, help="Write there instead of to the terminal.")
@click.option("--plot", type=_PATH, help="A picture as well: a .png or .svg file.")
@click.option("--save-trace", type=_PATH, help="Write the arrivals of the first scenario, seed 1, as CSV.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def simulate(
    list_: bool,
    today: Path | None,
    ledger: str | None,
    seeds: int,
    rehearsed: int,
    no_bound: bool,
    output: Path | None,
    plot: Path | None,
    save_trace: Path | None,
    quiet: bool,
    *,
    as_json: bool,
    as_csv: bool,
    **options: Any,
) -> None:
    """Compare policies, layouts and rules on simulated GPUs.

    What would be accepted, who would wait, what would be wasted? The rules are the allocator's own code. The same seeds give the
    same bytes.
    """
    from mig_spawner.planning.bench import Effort
    from mig_spawner.planning.plot import save_plot
    from mig_spawner.planning.scenario import STUDIES, list_scenarios
    from mig_spawner.planning.work import WRITERS, Options, Work, gpus_named

    if as_json and as_csv:
        raise click.UsageError("--json or --csv, not both.")
    if list_:
        click.echo("\n".join([*STUDIES, *list_scenarios()]))
        return
    effort = Effort(seeds=seeds, rehearsed=rehearsed, bound=not no_bound)
    layouts = () if today is None else layouts_of_today(today, gpus_named(options["gpus"]), options["per_node"])
    work = Work(Options(**options, today=layouts, effort=effort), None if ledger is None else _history(ledger))
    if save_trace is not None:
        work.save_trace(save_trace)
    with _progress(work.steps, quiet=quiet) as bar:
        comparison = work.run(lambda text: bar.update(1, text))
    write(WRITERS["json" if as_json else "csv" if as_csv else "table"](comparison), output)
    if plot is not None:
        save_plot(comparison, plot)


def _history(url: str) -> Any:
    from mig_spawner.cli.history import history

    return history(url)


def _progress(length: int, *, quiet: bool) -> Any:
    file = io.StringIO() if quiet else sys.stderr
    return click.progressbar(length=length, label="simulating", file=file, item_show_func=lambda text: text)


def write(text: str, output: Path | None) -> None:
    """To a file, or to the terminal."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}.") from error
