"""Runs that are kept in a file, one JSON line each, so that a long comparison goes on where it was broken off.

A run is known by all that it depends on: the arrivals, the GPUs, what is tried, and the version of this program. So a file may hold the
runs of many comparisons, and another number of seeds uses again what is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from mig_spawner._version import __version__
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy.priced.plan import kind_of
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.trace import Trace


class Kept:
    """The runs of a file, or of nowhere: then nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        """
        Raises:
            InvalidRequest: the file is there, and holds something else.
        """
        self._path = path
        self._known: dict[str, Any] = {}
        self._whole: int | None = None
        """So many bytes are whole lines, where the last one is without its end, for somebody pulled the plug."""
        if path is not None and path.exists():
            self._read(path)

    def recall(self, run: str, depends: str, make: Callable[[], Any]) -> Any:
        """What a run came to, as JSON; it is only run if that is not known yet.

        Args:
            run: what people call it.
            depends: the digest of all that it depends on.
            make: runs it.
        """
        if depends not in self._known:
            found = self._known[depends] = make()
            if self._path is not None:
                self._append(self._path, {"run": run, "depends": depends, "came_to": found})
        return self._known[depends]

    def _read(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"The runs kept in {path} cannot be read: {error}.") from error
        *lines, rest = text.split("\n")
        self._whole = len(text.encode()) - len(rest.encode()) if rest else None
        for number, line in enumerate(lines, start=1):
            try:
                kept = json.loads(line)
                self._known[kept["depends"]] = kept["came_to"]
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidRequest(f"{path}, line {number}, is no run that was kept. Name another file.") from error

    def _append(self, path: Path, kept: object) -> None:
        try:
            if self._whole is not None:
                os.truncate(path, self._whole)
                self._whole = None
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept) + "\n")
        except OSError as error:
            raise InvalidRequest(f"No run can be kept in {path}: {error.strerror}.") from error


def digest(*parts: object) -> str:
    """Of these values, and of this program's version. 32 hex digits."""
    return sha256(repr((__version__, *map(_said, parts))).encode()).hexdigest()[:32]


def _said(value: object) -> object:
    """As something whose `repr` is the same in every process; that of a set is not."""
    if isinstance(value, (set, frozenset)):
        return sorted(repr(_said(one)) for one in value)
    if isinstance(value, (tuple, list)):
        return [_said(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(_said(getattr(value, field.name)) for field in fields(value))]
    return value


def digest_of_trace(trace: Trace) -> str:
    """Of who comes when, wants what, and how long."""
    return digest(*((a.at, a.duration, repr(a.request), a.group, a.holder, a.wait) for a in trace))


def digest_of_fleet(fleet: Iterable[GPUState]) -> str:
    """Of the kinds of GPUs, in their order, and how they are cut."""
    return digest(*((kind_of(s.gpu), s.layout.mask, s.layout.heads, s.dynamic) for s in fleet))
