"""The templates: beside the package in a checkout, inside it in a wheel; an editable install has them only in the checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

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
def environment() -> Environment:
    """Jinja with autoescape on, where a forgotten variable is an error and not an empty text."""
    return Environment(
        loader=FileSystemLoader(template_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(name: str, **values: object) -> str:
    """Render `spawner/<name>`."""
    return environment().get_template(f"spawner/{name}").render(**values)
