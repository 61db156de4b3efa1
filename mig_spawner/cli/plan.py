"""`mig-spawner plan`."""

from __future__ import annotations

from pathlib import Path

import click

from mig_spawner.cli.outcome import Verb
from mig_spawner.cli.simulate import write
from mig_spawner.errors import InvalidRequest

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
@click.option("--today", type=_PATH, help="How the GPUs are cut today, as a mig-parted file; compared too.")
@click.option("--hours", type=click.FloatRange(10, 100_000), default=500, show_default=True, help="Simulated hours.")
@click.option("--rehearsed", type=click.IntRange(100, 1_000_000), default=20_000, show_default=True,
              help="Arrivals in the rehearsals of auto.")  # fmt: skip
@click.option("--no-trial", is_flag=True, help="Sums only; nothing is simulated.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="How the plan is written.")  # fmt: skip
@click.option("--output", type=_PATH, help="Write there instead of to the terminal.")
@click.option("--mig-parted", type=_PATH, help="Write the best layout that is cut once as a mig-parted file.")
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
    format_: str,
    output: Path | None,
    mig_parted: Path | None,
    quiet: bool,
) -> None:
    """Find out how to cut the GPUs, and how many it takes.

    For people who come one by one, and for classes that come all at once: cut once, cut on demand, as NVIDIA would, and as today,
    with the fewest GPUs that keep a promise.
    """
    from mig_spawner.planning.advice import ONCE, Trial, advise
    from mig_spawner.planning.call import Lesson, Stream
    from mig_spawner.planning.fleet import Group, gpus_of
    from mig_spawner.planning.need import Target, streams_of
    from mig_spawner.planning.parted import as_parted, read_parted
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
        today=None if today is None else read_parted(today, fleet),
        trial=Trial(hours=hours, rehearsed=rehearsed, **({"seeds": ()} if no_trial else {})),
        step=lambda text: None if quiet else click.echo(f"{text} ...", err=True),
    )
    if mig_parted is not None:
        able = [way for way in advice.ways if way.name == ONCE and way.cuts]
        if not able:
            raise InvalidRequest("There is no layout to write: no GPUs that are cut once keep the promise.")
        write(as_parted(able[0].cuts), mig_parted)
    write(as_text(advice) if format_ == "text" else as_document(advice), output)
