"""What an admin declares: named layouts, and which nodes get which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Part:
    """What a layout says of some GPUs.

    Attributes:
        gpus: indices in the order of the driver; None for all.
        models: PCI device ids as the driver gives them, `0x20B210DE`; a GPU of another model is not meant. Empty for any model.
        enabled: MIG mode.
        counts: how many instances of which profile. Names are as written: one that no known driver gives may come with the next.
        starts: where they begin, for profiles whose places are declared; as many as the count.
    """

    gpus: tuple[int, ...] | None
    models: tuple[str, ...]
    enabled: bool
    counts: Mapping[str, int]
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def means(self, index: int, model: str | None) -> bool:
        """Whether it speaks of the GPU with this index and PCI device id. An unknown id is of no model."""
        if self.gpus is not None and index not in self.gpus:
            return False
        return not self.models or (model or "").lower() in {m.lower() for m in self.models}


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """A layout: what it does not speak of, it leaves as it is."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes by pattern (`gpu-a-*`), and their layout by name."""

    name: str
    nodes: tuple[str, ...]
    layout: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """A whole file: layouts by name, and who gets which."""

    layouts: Mapping[str, NamedLayout]
    nodes: Mapping[str, str] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()

    def layout_of(self, node: str) -> NamedLayout | None:
        """The layout of a node: by its own name, else by the first pool that names it; None if nobody says."""
        name = self.nodes.get(node)
        if name is None:
            name = next((p.layout for p in self.pools if any(fnmatchcase(node, n) for n in p.nodes)), None)
        return None if name is None else self.layouts.get(name)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to say about a declaration.

    Attributes:
        where: the layout and its part, for people; empty for the whole file.
        fatal: what it is about cannot be used; otherwise it is a warning.
    """

    where: str
    sentence: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.where}: {self.sentence}" if self.where else self.sentence
