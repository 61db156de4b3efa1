"""The templates: beside the package in a checkout, inside it in a wheel; an editable install has them only in the checkout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined

_PACKAGE = Path(__file__).resolve().parents[1]


def template_folder() -> Path:
    """Where the templates are.

    Raises:
        RuntimeError: they are nowhere, so the installation is broken.
    """
    for folder in (_PACKAGE / "templates", _PACKAGE.parent / "templates"):
        if (folder / "spawner" / "form.html").is_file():
            return folder
    raise RuntimeError(
        f"The templates of mig-spawner are neither in {_PACKAGE / 'templates'} nor beside {_PACKAGE}. "
        "Install mig-spawner again, from a wheel or from a complete checkout."
    )


def template_path() -> str:
    """A folder for `c.JupyterHub.template_paths`: the hub's progress page, read out by screen readers."""
    return str(template_folder() / "spawner" / "hub")


@cache
def environment(paths: tuple[str, ...] = ()) -> Environment:
    """Jinja with autoescape on, where a forgotten variable is an error and not an empty text.

    Args:
        paths: folders of an admin, looked into first; ours are `templates/…` as well, for theirs to extend.
    """
    ours = FileSystemLoader(template_folder())
    return Environment(
        loader=ChoiceLoader([FileSystemLoader(paths), PrefixLoader({"templates": ours}), ours]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, paths: Sequence[str] = (), **values: object) -> str:
    """Render `spawner/<name>`, an admin's or ours."""
    return environment(tuple(paths)).get_template(f"spawner/{name}").render(**values)
