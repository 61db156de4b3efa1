"""Files with layouts, from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from mig_spawner.domain.layout import NamedLayout, Parsed, read
from mig_spawner.errors import InvalidRequest

MAX_BYTES: Final = 1024 * 1024


def load_layouts(path: Path) -> Parsed:
    """A file of layouts, in our words or in those of mig-parted, with what is to say about it.

    Raises:
        InvalidRequest: it cannot be read, or is no YAML.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidRequest(f"{path} is too long for a file of layouts.")
        return read(_load(path.read_text("utf-8")), _load)
    except OSError as error:
        raise InvalidRequest(f"The layouts cannot be read from {path}: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidRequest(f"{path} is no YAML: {error}") from error


def dump(document: dict[str, Any]) -> str:
    """A document as YAML, in the order it has."""
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, allow_unicode=True)


def layout_for(path: Path, node: str) -> NamedLayout:
    """The layout that a file gives a node.

    Raises:
        InvalidRequest: the file has a fault, or gives this node none.
    """
    parsed = load_layouts(path)
    if parsed.faulty:
        raise InvalidRequest(f"{path}: {'; '.join(str(f) for f in parsed.findings if f.fatal)}")
    layout = parsed.declaration.layout_of(node)
    if layout is None:
        raise InvalidRequest(f"{path} gives node {node} no layout: name it under 'nodes', or in a pool.")
    return layout


def _load(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise ValueError(f"{getattr(error, 'problem', None) or 'it makes no sense'}{where}.") from error
