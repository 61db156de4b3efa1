"""`mig-spawner layout`: layouts that an admin declares, and the GPUs of this machine beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.layout import Change, apply, not_in_force, planned, seats
from mig_spawner.agent.layout_file import dump, load_layouts
from mig_spawner.agent.owner import owners, programs
from mig_spawner.cli.outcome import Verb, printable
from mig_spawner.cli.show import table
from mig_spawner.domain.layout import (
    Declaration,
    Finding,
    NamedLayout,
    Seat,
    current,
    intend,
    to_config_map,
    to_mig_parted,
    to_ours,
)
from mig_spawner.domain.sentence import counted
from mig_spawner.errors import DriverError, InvalidRequest
from mig_spawner.testing.gpu import SimulatedNode, find_model, list_models
from mig_spawner.wire.node import GPUDocument

F = TypeVar("F", bound=Callable[..., Any])

FAULTY: Final = 3
"""Exit code: a layout cannot be had as it is written, or was not made."""

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def layout() -> None:
    """How the GPUs of a node are to be cut: show, check, import, export, apply."""


def here(command: F) -> F:
    """Options that say which GPUs are meant: those of this machine, or simulated ones."""
    command = click.option(
        "--driver", type=click.Choice(["nvml", "fake"]), default="nvml", show_default=True, help="Whose GPUs."
    )(command)
    return click.option(
        "--state-file",
        type=click.Path(path_type=Path),
        help="With --driver=fake: where an agent keeps its simulated GPUs.",
    )(command)


def chosen(command: F) -> F:
    """Options that say which layout of a file is meant."""
    command = click.option("--node", help="Take the layout that the file gives this node.")(command)
    return click.option("--layout", "name", help="Take the layout of this name.")(command)


@layout.command(cls=Verb)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@chosen
@here
def show(file: Path | None, name: str | None, node: str | None, driver: str, state_file: Path | None) -> None:
    """Show how the GPUs of this machine are cut and, with FILE, how they are meant to be."""
    with _opened(driver, state_file) as (_, observer):
        gpus = observer.observe()
    wanted = None if file is None else _layout(file, name, node)
    open_ends = {} if wanted is None else not_in_force(gpus, wanted)
    intents = {} if wanted is None else {i.gpu_uuid: i for i in intend(wanted, seats(gpus))[0]}
    rows = []
    for index, gpu in enumerate(gpus):
        intent = intents.get(gpu.gpu_uuid)
        meant = (
            "as it is"
            if intent is None
            else "uncut"
            if not intent.enabled
            else _places((str(p.name), s) for p, s in intent.places)
        )
        state = "" if wanted is None else open_ends.get(gpu.gpu_uuid, "in force" if intent else "")
        rows.append((index, gpu.model, gpu.health, _actual(gpu), meant if wanted else "", state))
    table(("gpu", "model", "health", "is", "is meant to be", "verdict"), rows)


@layout.command(cls=Verb)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--gpu", "models", multiple=True, metavar="MODEL:COUNT", help="Check for a node with these GPUs; repeat it."
)
@click.option("--here", "on_this", is_flag=True, help="Check for the GPUs of this machine.")
@here
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[Path, ...],
    models: tuple[str, ...],
    on_this: bool,
    driver: str,
    state_file: Path | None,
) -> None:
    """Say of each layout in FILES whether it can be had: on the GPUs that are named, else on any known model."""
    node = _seats_of(models) if models else None
    if on_this:
        with _opened(driver, state_file) as (_, observer):
            node = seats(observer.observe())
    bad = False
    for file in files:
        try:
            parsed = load_layouts(file)
        except InvalidRequest as error:
            click.echo(printable(str(error)))
            bad = True
            continue
        findings = [*parsed.findings, *_verdicts(parsed.declaration, node)]
        bad = bad or any(f.fatal for f in findings)
        for finding in findings:
            click.echo(printable(f"{file}: {'' if finding.fatal else 'warning: '}{finding}"))
        faulty = {f.where.partition(", part")[0] for f in findings if f.fatal}
        good = [name for name in parsed.declaration.layouts if name not in faulty]
        click.echo(
            printable(f"{file}: {counted(len(good), 'layout')} can be had{': ' if good else ''}{', '.join(good)}")
        )
    ctx.exit(FAULTY if bad else 0)


@layout.command("import", cls=Verb)
@FILE
@click.pass_context
def import_(ctx: click.Context, file: Path) -> None:
    """Print a file of mig-parted, bare or in a ConfigMap or in the values of a chart, in our words."""
    parsed = load_layouts(file)
    _remark(parsed.findings)
    if not parsed.declaration.layouts:
        ctx.exit(FAULTY)
    click.echo(dump(to_ours(parsed.declaration)), nl=False)
    ctx.exit(FAULTY if parsed.faulty else 0)


@layout.command(cls=Verb)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--config-map", metavar="NAME", help="As the ConfigMap in which mig-manager looks for it.")
@click.option("--ours", is_flag=True, help="In our words, with the places.")
@here
@click.pass_context
def export(
    ctx: click.Context, file: Path | None, config_map: str | None, ours: bool, driver: str, state_file: Path | None
) -> None:
    """Print FILE as a file of mig-parted; without FILE, what is on the GPUs of this machine."""
    if file is None:
        with _opened(driver, state_file) as (_, observer):
            gpus = observer.observe()
        sick = next((gpu for gpu in gpus if gpu.mig_enabled is None and gpu.health == "bad"), None)
        if sick is not None:
            raise InvalidRequest(f"GPU {sick.gpu_uuid} cannot be read, so what is there cannot be written down.")
        found = current([(gpu.mig_enabled is True, _names(gpu)) for gpu in gpus])
        declaration = Declaration({found.name: found})
    else:
        parsed = load_layouts(file)
        _remark(parsed.findings)
        declaration = parsed.declaration
        if parsed.faulty:
            ctx.exit(FAULTY)
    if ours:
        click.echo(dump(to_ours(declaration)), nl=False)
        return
    document, lost = to_mig_parted(declaration)
    _remark(lost if file is not None else [])
    click.echo(dump(to_config_map(config_map, dump(document)) if config_map else document), nl=False)


@layout.command("apply", cls=Verb)
@FILE
@chosen
@click.option("--replace", is_flag=True, help="Destroy idle instances that are not in the layout.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@here
@click.pass_context
def apply_(
    ctx: click.Context,
    file: Path,
    name: str | None,
    node: str | None,
    replace: bool,
    dry_run: bool,
    driver: str,
    state_file: Path | None,
) -> None:
    """Make a layout on the GPUs of this machine: all of it, or nothing. Cordon the node first if people lease slices of it."""
    wanted = _layout(file, name, node)
    with _opened(driver, state_file) as (opened, observer):
        found, impossible = planned(observer.observe(), wanted, replace=replace)
        impossible += owners(programs(), dynamic=True) if driver == "nvml" else []
        refusals = [*impossible, *(f"GPU {c.gpu_uuid}: {c.refusal}" for c in found if c.refusal)]
        _say(found, refusals)
        if refusals:
            ctx.exit(FAULTY)
        if dry_run or not any(c.steps for c in found):
            return

        def confirm() -> str:
            return " ".join(not_in_force(observer.observe(), wanted).values())

        outcome = apply(opened, observer, found, confirm=confirm)
    if not outcome.failure:
        click.echo(f"Layout {wanted.name} is in force: {counted(len(outcome.done), 'step')}.")
        return
    click.echo(printable(f"It failed: {outcome.failure}"), err=True)
    for sentence in outcome.left:
        click.echo(printable(sentence), err=True)
    click.echo(
        "Everything else was put back as it was." if outcome.left else "Everything was put back as it was.", err=True
    )
    ctx.exit(FAULTY)


def _say(found: Sequence[Change], refusals: Sequence[str]) -> None:
    for change in found:
        for step in change.steps:
            click.echo(printable(f"GPU {change.gpu_uuid}: {step}"))
    for sentence in refusals:
        click.echo(printable(f"Cannot: {sentence}"), err=True)
    if not refusals and all(change.in_force for change in found):
        click.echo("There is nothing to do.")


@contextmanager
def _opened(driver: str, state_file: Path | None) -> Iterator[tuple[Driver, Observer]]:
    try:
        with _driver(driver, state_file) as opened:
            yield opened, Observer(opened, dynamic=True)
    except DriverError as error:
        raise InvalidRequest(str(error)) from error


def _driver(driver: str, state_file: Path | None) -> Driver:
    if driver == "fake":
        if state_file is None:
            raise InvalidRequest("Say where the simulated GPUs are kept: --state-file=…")
        return FakeDriver(SimulatedNode.open(state_file))
    try:
        from mig_spawner.agent.driver.nvml import NVMLDriver
    except ImportError as error:
        raise InvalidRequest("The NVML binding is not installed. Run: pip install 'mig-spawner[agent]'.") from error
    return NVMLDriver()


def _layout(file: Path, name: str | None, node: str | None) -> NamedLayout:
    parsed = load_layouts(file)
    if name is not None:
        faults = [f for f in parsed.findings if f.fatal and f.where.partition(", part")[0] in ("", name)]
        found = parsed.declaration.layouts.get(name)
    elif node is not None:
        faults = [f for f in parsed.findings if f.fatal]
        found = parsed.declaration.layout_of(node)
    else:
        raise InvalidRequest("Say which layout: --layout=NAME, or --node=NODE if the file has nodes.")
    if faults:
        raise InvalidRequest(" ".join(map(str, faults)))
    if found is None:
        there = ", ".join(parsed.declaration.layouts) or "none"
        raise InvalidRequest(f"{file} has no layout for {name or node}. Its layouts: {there}.")
    return found


def _seats_of(words: Sequence[str]) -> list[Seat]:
    from mig_spawner.agent.app import parse_gpus

    models = [find_model(word) for word in parse_gpus(list(words))]
    return [Seat(index, model.gpu(f"GPU-{index}"), model.pci_device_id) for index, model in enumerate(models)]


def _verdicts(declaration: Declaration, node: Sequence[Seat] | None) -> Iterator[Finding]:
    for layout_ in declaration.layouts.values():
        if node is not None:
            yield from intend(layout_, node)[1]
        else:
            yield from _on_any_model(layout_)


def _on_any_model(layout_: NamedLayout) -> Iterator[Finding]:
    """Parts that no GPU model can have of which it is known how it is cut. Of those meant, one has to be able."""
    models = [model for model in list_models() if not model.refusal]
    for number, part in enumerate(layout_.parts, 1):
        if not part.enabled or not part.counts:
            continue
        alone = NamedLayout(layout_.name, (part,))
        index = 0 if part.gpus is None else part.gpus[0]
        meant = [m for m in models if part.means(index, m.pci_device_id)]
        reasons = []
        for model in meant:
            seat = Seat(index, model.gpu("GPU-x"), model.pci_device_id)
            there = [Seat(n, seat.gpu, seat.model) for n in part.gpus or (0,)]
            found = [f for f in intend(alone, there)[1] if f.fatal]
            if not found:
                break
            reasons.append(found[0].sentence)
        else:
            where = f"{layout_.name}, part {number}"
            if not meant:
                sentence = f"No known model has one of the PCI device ids {', '.join(part.models)}."
                yield Finding(where, sentence, fatal=False)
            else:
                yield Finding(where, f"No known model can have it. {_most_telling(reasons)}")


def _most_telling(reasons: Sequence[str]) -> str:
    """That of a model which has the profiles, if one has."""
    return next((r for r in reasons if " has no " not in r), reasons[0])


def _names(gpu: GPUDocument) -> list[tuple[str, int]]:
    return [(i.profile or f"profile {i.profile_id}", i.start) for i in gpu.instances]


def _actual(gpu: GPUDocument) -> str:
    if gpu.mig_enabled is not True:
        return "no MIG mode" if gpu.mig_enabled is None else "uncut"
    return _places(_names(gpu)) or "cut into nothing"


def _places(places: Iterator[tuple[str, int]] | Sequence[tuple[str, int]]) -> str:
    return " ".join(f"{name}@{start}" for name, start in sorted(places, key=lambda place: place[1]))


def _remark(findings: Sequence[Finding]) -> None:
    for finding in findings:
        click.echo(printable(f"{'' if finding.fatal else 'warning: '}{finding}"), err=True)
