"""Write the reference pages from the code: `python docs/generate.py`. A test fails when a page is out of date."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from traitlets import TraitType
from traitlets.config import Configurable

from mig_spawner.agent.app import AgentApp
from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.spawner import MIGSpawner

PAGE = Path(__file__).parent / "reference" / "configuration.md"

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


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(configuration(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(Path.cwd())}" if PAGE.is_relative_to(Path.cwd()) else f"wrote {PAGE}")
