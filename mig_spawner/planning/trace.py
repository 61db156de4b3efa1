"""Who comes when, wants what, and stays how long: one arrival a line.

As CSV: `arrival,duration,profile,memory_gb,group,holder,wait`, of which the first three must be there. Arrivals are
seconds or ISO 8601 times with a zone, durations and waits are seconds; without profile and memory a line asks for a whole GPU.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, TextIO

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest

REQUIRED: Final = ("arrival", "duration", "profile")
COLUMNS: Final = (*REQUIRED, "memory_gb", "group", "holder", "wait")
MAX_ROWS: Final = 2_000_000
MAX_TEXT: Final = 255


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request.

    Attributes:
        at: seconds since the beginning of the trace.
        duration: seconds that it stays once it is served.
        group: of the holder, for refusals by group and for rules about groups; may be empty.
        holder: who it is; empty for somebody else each time.
        wait: seconds that it is ready to wait where a rule lets it.
    """

    at: float
    duration: float
    request: Request
    group: str = ""
    holder: str = ""
    wait: float = inf

    @property
    def groups(self) -> frozenset[str]:
        """As rules about groups want it."""
        return frozenset((self.group,)) if self.group else frozenset()


Trace = Sequence[Arrival]
"""Arrivals in order of time."""


def read_trace(path: Path) -> list[Arrival]:
    """The arrivals of a CSV file, sorted by time, the first at 0.

    Raises:
        InvalidRequest: with a sentence that names the line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return parse_trace(file, str(path))
    except OSError as error:
        raise InvalidRequest(f"The trace {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The trace {path} is no UTF-8 text.") from error


def parse_trace(lines: Iterable[str], name: str) -> list[Arrival]:
    """As `read_trace`, from the lines of a file."""
    reader = csv.DictReader(lines)
    columns = reader.fieldnames or ()
    missing = [column for column in REQUIRED if column not in columns]
    unknown = [column for column in columns if column not in COLUMNS]
    if missing or unknown:
        fault = f"has no column {', '.join(missing)}" if missing else f"has unknown columns {', '.join(unknown)}"
        raise InvalidRequest(f"The trace {name} {fault}. Its first line is like {','.join(COLUMNS)}.")
    arrivals: list[Arrival] = []
    try:
        for row in reader:
            if len(arrivals) >= MAX_ROWS:
                raise InvalidRequest(f"it has more than {MAX_ROWS} lines; cut it")
            arrivals.append(_arrival(row))
    except (InvalidRequest, csv.Error) as error:
        raise InvalidRequest(f"The trace {name}, line {reader.line_num}: {error}") from error
    if not arrivals:
        raise InvalidRequest(f"The trace {name} has no arrivals.")
    return from_zero(arrivals)


def from_zero(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """The same, in order of time, the first at 0."""
    ordered = sorted(arrivals, key=lambda a: a.at)
    first = ordered[0].at if ordered else 0.0
    return [Arrival(a.at - first, a.duration, a.request, a.group, a.holder, a.wait) for a in ordered]


def _arrival(row: dict[str | Any, str | Any]) -> Arrival:
    if None in row or None in row.values():
        raise InvalidRequest("it has more or fewer fields than the first line names.")
    wait = row.get("wait", "")
    return Arrival(
        at=_moment(row["arrival"]),
        duration=_number(row["duration"], "duration"),
        request=parse_request(row["profile"], row.get("memory_gb", "")),
        group=_text(row.get("group", ""), "group"),
        holder=_text(row.get("holder", ""), "holder"),
        wait=_number(wait, "wait") if wait else inf,
    )


def parse_request(profile: str, memory_gb: str = "") -> Request:
    """What a line asks for: a profile, a memory, or neither for a whole GPU.

    Raises:
        InvalidRequest: both, or one that is none.
    """
    if profile and memory_gb:
        raise InvalidRequest("name a profile or a memory, not both.")
    if profile:
        return SliceRequest(ProfileName.parse(profile))
    return MemoryRequest(_number(memory_gb, "memory_gb")) if memory_gb else WholeRequest()


def write_trace(trace: Trace, file: TextIO) -> None:
    """As CSV that `read_trace` reads back."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for a in trace:
        profile = str(a.request.profile) if isinstance(a.request, SliceRequest) else ""
        memory = f"{a.request.min_memory_gb:g}" if isinstance(a.request, MemoryRequest) else ""
        wait = "" if a.wait == inf else repr(a.wait)
        writer.writerow((repr(a.at), repr(a.duration), profile, memory, a.group, a.holder, wait))


def in_order(trace: Trace) -> bool:
    """Whether the arrivals are in order of time."""
    return all(a.at <= b.at for a, b in pairwise(trace))


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _number(text, "arrival", least=-inf)
    if moment.tzinfo is None:
        raise InvalidRequest(f"the arrival {text[:40]!r} has no time zone; write it like 2026-03-01T10:00:00+00:00.")
    return moment.timestamp()


def _number(text: str, column: str, least: float = 0.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not isfinite(value) or value < least:
        raise InvalidRequest(f"{column} is a number from 0 on, not {text[:40]!r}.")
    return value


def _text(text: str, column: str) -> str:
    if len(text) > MAX_TEXT or not text.isprintable():
        raise InvalidRequest(f"{column} has at most {MAX_TEXT} printable characters.")
    return text
