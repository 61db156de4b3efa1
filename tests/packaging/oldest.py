"""The oldest version of everything that a server or a person installs with mig-spawner, as constraints for pip.

`pyproject.toml` says `>=`, and this says `==` of the same: a bound that is not true fails the tests of `make test-hub5`.

    python -m tests.packaging.oldest > constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

PYPROJECT: Final = Path(__file__).resolve().parents[2] / "pyproject.toml"
EXTRAS: Final = ("agent", "allocator", "hub")
_BOUND: Final = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)")


def constraints(project: dict[str, Any]) -> list[str]:
    """One line for each dependency at run time.

    Raises:
        ValueError: one has no lower bound, two disagree, or it is more than a lower bound.
    """
    oldest: dict[str, str] = {}
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]:
        match = _BOUND.fullmatch(requirement)
        if match is None:
            raise ValueError(f"{requirement}: say its oldest version as `name>=1.2`, and nothing else.")
        name, version = match[1].lower().replace("_", "-"), match[2]
        if oldest.setdefault(name, version) != version:
            raise ValueError(f"{name} is wanted from {oldest[name]} in one place and from {version} in another.")
    return [f"{name}=={version}" for name, version in sorted(oldest.items())]


if __name__ == "__main__":
    print("\n".join(constraints(tomllib.loads(PYPROJECT.read_text())["project"])))
