"""`mig-spawner plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mig_spawner.cli.option import with_json
from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.simulate import write
from mig_spawner.cli.today import layouts_of_today
from mig_spawner.domain.layout import to_mig_parted, to_ours
from mig_spawner.domain.layout.reader import MAX_GPUS
from mig_spawner.errors import InvalidRequest

if TYPE_CHECKING:
    from mig_spawner.domain.gpu import GPU
    from mig_spawner.planning.fleet import Cut

_PATH = click.Path(path_type=Path)


@click.command(cls=Verb)
@click.option("--gpu", "gpus", multiple=True, required=True, metavar="MODEL:COUNT", help="GPUs at hand; repeatable.")
@click.option(
    "--demand", "demands", multiple=True, help="People who come one by one: '1g.10gb = 20/h x 2h'; repeatable."
)
@click.option("--class", "lessons", multiple=True, help="'30 people, 1g.10gb, Tuesday 10-12'; repeatable.")
@click.option("--trace", type=_PATH, help="Arrivals of the past as CSV, instead of --demand.")
@click.option("--from-ledger", "ledger", metavar="URL", help="Arrivals that a ledger remembers, instead of --demand.")
@click.option("--acceptance", type=float, help="Promise: so much of each profile is served at once. [default: 0.99]")
@click.option("--p90-wait", type=float, help="Promise instead: nine of ten wait at most so many minutes.")
@click.option(
    "--today",
    type=_PATH,
    help="How the nodes are cut today, as a file of layouts (ours or mig-parted's); compared too.",
)
@click.option("--hours", type=click.FloatRange(10, 100_000), default=500, show_default=True, help="Simulated hours.")
@click.option("--rehearsed", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True,
              help="Arrivals in the rehearsals of auto.")  # fmt: skip
@click.option("--no-trial", is_flag=True, help="Sums only; nothing is simulated.")
@with_json
@click.option("--output", type=_PATH, help="Write there instead of to the terminal.")
@click.option("--layout", type=_PATH, help="Write the layout that is cut once in our words, for agents.")
@click.option("--mig-parted", type=_PATH, help="Write the layout that is cut once as a mig-parted file.")
@click.option("--per-node", type=click.IntRange(1, MAX_GPUS), default=8, show_default=True,
              help="GPUs of a node, for --layout, --mig-parted and --today.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Do not say what is being worked out.")
def plan(
    gpus: tuple[str, ...],
    demands: tuple[str, ...],
    lessons: tuple[str, ...],
    trace: Path | None,
    ledger: str | None,
    acceptance: float | None,
    p90_wait: float | None,
    today: Path | None,
    hours: float,
    rehearsed: int,
    no_trial: bool,
    output: Path | None,
    layout: Path | None,
    mig_parted: Path | None,
    per_node: int,
    quiet: bool,
    *,
    as_json: bool,
) -> None:
    """Find out how to cut the GPUs, and how many it takes.

    For people who come one by one, and for classes that come all at once: cut once, cut on demand, as NVIDIA would, and as today,
    with the fewest GPUs that keep a promise.
    """
    from mig_spawner.planning.advice import ONCE, Trial, advise
    from mig_spawner.planning.call import Lesson, Stream
    from mig_spawner.planning.fleet import Group, gpus_of
    from mig_spawner.planning.need import Target, streams_of
    from mig_spawner.planning.tell import as_document, as_text
    from mig_spawner.planning.trace import read_trace

    fleet = gpus_of([Group.parse(text) for text in gpus])
    streams = [Stream.parse(text) for text in demands]
    if trace is not None:
        streams += streams_of(read_trace(trace), fleet)
    if ledger is not None:
        from mig_spawner.cli.history import history

        streams += streams_of(history(ledger), fleet)
    default = 0.99 if acceptance is None and p90_wait is None else acceptance
    advice = advise(
        fleet,
        streams,
        [Lesson.parse(text) for text in lessons],
        Target(default, None if p90_wait is None else p90_wait / 60),
        today=None if today is None else _today(today, fleet, per_node),
        trial=Trial(hours=hours, rehearsed=rehearsed, **({"seeds": ()} if no_trial else {})),
        step=lambda text: None if quiet else click.echo(f"{text} ...", err=True),
    )
    if layout is not None or mig_parted is not None:
        able = [way for way in advice.ways if way.name == ONCE and way.cuts]
        if not able:
            raise InvalidRequest("There is no layout to write: no GPUs that are cut once keep the promise.")
        _export(able[0].cuts, per_node, layout, mig_parted)
    write(as_document(advice) if as_json else as_text(advice), output)


def _today(path: Path, fleet: Sequence[GPU], per_node: int) -> dict[str, list[Cut]]:
    from mig_spawner.planning.declared import cuts_of

    layouts = layouts_of_today(path, fleet, per_node)
    return {layout.name: cuts_of(layout, fleet, per_node=per_node)[0] for layout in layouts}


def _export(cuts: Sequence[tuple[GPU, Cut]], per_node: int, layout: Path | None, mig_parted: Path | None) -> None:
    from mig_spawner.agent.layout_file import dump
    from mig_spawner.planning.declared import declare

    declared = declare(cuts, per_node=per_node)
    notes = "".join(f"# {note}\n" for note in declared.notes)
    if layout is not None:
        write(notes + dump(to_ours(declared.declaration)), layout)
    if mig_parted is not None:
        write(notes + dump(to_mig_parted(declared.declaration)[0]), mig_parted)
