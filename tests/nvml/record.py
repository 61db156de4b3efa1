"""The state file of the library: one record per line, `kind name=value …`. `library/state.c` reads and writes the same."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote_from_bytes


@dataclass
class Record:
    """A line. Texts are kept as they stand in the file; see `text`."""

    kind: str
    values: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> Record:
        kind, *pairs = line.split()
        return cls(kind, dict(pair.split("=", 1) for pair in pairs))

    def __getitem__(self, name: str) -> int:
        return int(self.values[name], 16 if name in ("pci", "starts") else 10)

    def set(self, **changes: object) -> None:
        for name, value in changes.items():
            assert name in self.values, f"a {self.kind} has no {name}"
            self.values[name] = str(value)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{name}={value}" for name, value in self.values.items())])


def record(kind: str, **values: object) -> Record:
    return Record(kind, {name: str(value) for name, value in values.items()})


def text(value: str | bytes) -> str:
    """A text as it stands in the file: without spaces, and with any byte."""
    return quote_from_bytes(value.encode() if isinstance(value, str) else value, safe="+.,-()")


@dataclass
class State:
    """All records. The C side counts GPUs by the order of their lines."""

    records: list[Record] = field(default_factory=list)

    def of(self, kind: str, **wanted: object) -> list[Record]:
        """The records of a kind with these values."""
        found = [r for r in self.records if r.kind == kind]
        return [r for r in found if all(r.values[name] == str(value) for name, value in wanted.items())]

    def number(self, gpu_uuid: str) -> int:
        """The index of a GPU."""
        return [g.values["uuid"] for g in self.of("gpu")].index(gpu_uuid)

    def gpu(self, gpu_uuid: str) -> Record:
        return self.of("gpu")[self.number(gpu_uuid)]

    def remove(self, kind: str, **wanted: object) -> None:
        gone = self.of(kind, **wanted)
        self.records = [r for r in self.records if all(r is not g for g in gone)]

    def __str__(self) -> str:
        # What refers to a record comes after it.
        order = ["node", "gpu", "profile", "instance", "compute", "fault", "delay", "event"]
        return "".join(f"{r}\n" for r in sorted(self.records, key=lambda r: order.index(r.kind)))


def read(path: Path) -> State:
    """The state as it is. The file is replaced as a whole, so no lock is needed."""
    return State([Record.parse(line) for line in path.read_text("ascii").splitlines()])


@contextmanager
def change(path: Path) -> Iterator[State]:
    """The state, to be changed in place while no call of the library runs."""
    with Path(f"{path}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read(path)
        yield state
        write(path, state)


def write(path: Path, state: State) -> None:
    fresh = Path(f"{path}.fresh")
    fresh.write_text(str(state), "ascii")
    fresh.replace(path)
