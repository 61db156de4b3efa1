"""The manifests that `hub_config/kubernetes/` ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parents[2] / "hub_config" / "kubernetes"
FILES: Final = sorted(path.name for path in FOLDER.iterdir())


def read(file: str) -> list[dict[str, Any]]:
    """All objects of one file, in its order."""
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def find(kind: str, name: str) -> dict[str, Any]:
    """The one object of this kind and name."""
    [found] = [m for file in FILES for m in read(file) if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    return found
