"""The page's templates, from the wheel, where they lie inside the package, or from a checkout, where they lie beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import mig_spawner
from mig_spawner.allocator.page import words
from mig_spawner.allocator.page.asset import version

_PACKAGE: Final = Path(mig_spawner.__file__).parent


def environment() -> Environment:
    """The environment of the allocator's templates, with autoescape on and every missing value an error.

    Raises:
        FileNotFoundError: there are no templates; the installation is broken.
    """
    candidates = [_PACKAGE / "templates" / "allocator", _PACKAGE.parent / "templates" / "allocator"]
    folder = next((path for path in candidates if path.is_dir()), None)
    if folder is None:
        places = " nor in ".join(str(path) for path in candidates)
        raise FileNotFoundError(f"The allocator's templates are neither in {places}. Install mig-spawner again.")
    made = Environment(
        loader=FileSystemLoader(folder),
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
        "gpu_hours": words.gpu_hours,
    }
    made.globals["version"] = version
    return made
