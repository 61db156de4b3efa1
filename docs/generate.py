"""Write the reference pages from the code: `python docs/generate.py`. A test fails when a page is out of date."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from traitlets import TraitType
from traitlets.config import Configurable

from mig_spawner.agent.app import AgentApp
from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.cli import main
from mig_spawner.spawner import MIGSpawner
from mig_spawner.wire.menu.schema import menu_schema

FOLDER = Path(__file__).parent / "reference"

PARTS: list[tuple[type[Configurable], str]] = [
    (MIGSpawner, "In `jupyterhub_config.py`, `c.MIGSpawner.<name>`; everything of KubeSpawner holds as well."),
    (
        AllocatorApp,
        "On the command line, `--AllocatorApp.<name>=…`, or in a file named by `--AllocatorApp.config_file`.",
    ),
    (AgentApp, "On the command line, `--AgentApp.<name>=…` or the short forms of `--help`, or in a file."),
]


def own_traits(cls: type[Configurable]) -> dict[str, TraitType[Any, Any]]:
    """The configurable traits that mig-spawner adds, by name."""
    ours = [base for base in cls.__mro__ if base.__module__.startswith("mig_spawner.")]
    names = {name for base in ours for name, value in vars(base).items() if isinstance(value, TraitType)}
    return {name: trait for name, trait in sorted(cls.class_traits(config=True).items()) if name in names}


def configuration() -> str:
    """The page on settings, as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterable[str]:
    yield "# Configuration"
    yield ""
    yield "Written by `make docs` from the code."
    for cls, how in PARTS:
        yield from ("", f"## {cls.__name__}", "", how)
        for name, trait in own_traits(cls).items():
            yield from ("", f"### `{cls.__name__}.{name}`", "")
            yield f"{trait.info().capitalize()}. Default: {_default(trait)}."
            yield ""
            yield inspect.cleandoc(trait.help)
    yield ""


def _default(trait: TraitType[Any, Any]) -> str:
    value = trait.default_value_repr()
    return f"`{value}`" if value not in {"''", "None", "traitlets.Undefined"} else "empty, or as told below"


def commands() -> str:
    """The page on the command line, as Markdown."""
    lines = [
        "# Command line",
        "",
        "Written by `make docs` from the code. How to use it: [the command line](../cli.md).",
    ]
    return "\n".join([*lines, *_command("mig-spawner", main), ""])


def _command(path: str, command: click.Command) -> Iterable[str]:
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            verb = command.get_command(context, name)
            if verb is not None:
                yield from _command(f"{path} {name}", verb)
        return
    arguments = [p for p in command.params if isinstance(p, click.Argument) and p.metavar]
    options = [p for p in command.params if isinstance(p, click.Option)]
    words = [path, *(["[OPTIONS]"] if options else []), *(str(p.metavar) for p in arguments)]
    yield from ("", f"## `{' '.join(words)}`", "", inspect.cleandoc(command.help or ""))
    if options:
        yield from ("", "| option | is |", "|---|---|")
    for option in options:
        takes = "" if option.is_flag else f" {option.metavar or _taken(option)}"
        yield f"| `{', '.join(option.opts)}{takes}` | {_option_text(option)} |"


def _taken(option: click.Option) -> str:
    choices = getattr(option.type, "choices", None)
    return "\\|".join(str(choice) for choice in choices) if choices else option.type.name.upper()


def _option_text(option: click.Option) -> str:
    shown = option.to_info_dict()["default"] if option.show_default else None
    told = [
        (option.help or "").replace("|", "\\|"),
        f"Default: `{shown}`." if shown is not None else "",
        "Repeatable." if option.multiple else "",
        f"Or `${option.envvar}`." if option.envvar else "",
    ]
    return " ".join(part for part in told if part)


def menu_schema_text() -> str:
    """The JSON schema of menus."""
    return json.dumps(menu_schema(), indent=2) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "cli.md": commands,
    "menu.schema.json": menu_schema_text,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/reference/{name}")
