"""The page's templates, from the wheel, where they lie inside the package, or from a checkout, where they lie beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from traitlets import HasTraits, List, TraitError, Unicode, validate

import mig_spawner
from mig_spawner.allocator.page import words
from mig_spawner.allocator.page.asset import version

_PACKAGE: Final = Path(mig_spawner.__file__).parent


def environment(paths: Sequence[str] = ()) -> Environment:
    """The environment of the allocator's templates, with autoescape on and every missing value an error.

    Args:
        paths: folders of an admin, looked into first; ours are `templates/…` as well, for theirs to extend.

    Raises:
        FileNotFoundError: there are no templates; the installation is broken.
    """
    candidates = [_PACKAGE / "templates" / "allocator", _PACKAGE.parent / "templates" / "allocator"]
    folder = next((path for path in candidates if path.is_dir()), None)
    if folder is None:
        places = " nor in ".join(str(path) for path in candidates)
        raise FileNotFoundError(f"The allocator's templates are neither in {places}. Install mig-spawner again.")
    ours = FileSystemLoader(folder)
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(paths), PrefixLoader({"templates": ours}), ours]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "holder": words.holder_name,
        "span": words.span,
        "extendable": words.extendable,
        "moment": words.moment,
        "countdown": words.countdown,
        "number": words.number,
        "gigabytes": words.gigabytes,
        "percent": words.percent,
        "gpu_hours": words.gpu_hours,
    }
    made.globals["version"] = version
    return made


class TemplateTraits(HasTraits):
    """Where templates of an admin are."""

    template_paths = List(
        Unicode(),
        help="""Folders with templates of your own for the pages, looked into before ours.

        `slices.html` there, say, is used instead of ours, and may `{% extends "templates/slices.html" %}`. The page on the pages says
        what there is to extend.
        """,
    ).tag(config=True)

    @validate("template_paths")
    def _folders(self, proposal: Any) -> Any:
        missing = [path for path in proposal.value if not Path(path).is_dir()]
        if missing:
            raise TraitError(f"There is no folder {missing[0]!r} for template_paths. Make it, or leave it out.")
        return proposal.value
