"""The files that pages load: scripts and styles, shipped with the code."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parents[1] / "static"


@functools.cache
def version(name: str) -> str:
    """What to put behind `?v=` so that a browser keeps a file exactly as long as it is the same."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
