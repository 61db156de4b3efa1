"""What transactions have written, by key, so that whoever keeps a view of the ledger reads that again and nothing else.

Each commit leaves one row in the table `change`: a number that grows, a stamp that no other row has, and the keys of what was
written. A transaction looks from the row that a view was last brought up to. If that row is not there any more, or has another
stamp, since it was dropped or the database is an older copy, everything is read anew. So a view is a saving and never the truth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Final

from mig_spawner.allocator.store.plans import PlanRecord

KEPT: Final = 5000
"""Rows; who has not looked for longer reads everything."""
DROPPED_EVERY: Final = 500
"""Older ones are dropped when so many have come."""


@dataclass
class Changed:
    """Keys of what was written, and may be another by now, or gone.

    Attributes:
        leases: by id; of the others those that hold memory slices matter.
        nodes: by name.
        owners: the GPUs that came to a node or left one, by `gpu_uuid`.
        remnants: the GPUs on which some came or went, by `gpu_uuid`.
        pods: by uid.
    """

    leases: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    remnants: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.leases or self.nodes or self.owners or self.remnants or self.pods)

    def add(self, other: Changed) -> None:
        """Take in what another has."""
        self.leases |= other.leases
        self.nodes |= other.nodes
        self.owners |= other.owners
        self.remnants |= other.remnants
        self.pods |= other.pods

    def to_text(self) -> str:
        """As it is kept in the database."""
        return json.dumps({f.name: sorted(keys) for f in fields(self) if (keys := getattr(self, f.name))})

    @classmethod
    def from_text(cls, text: str) -> Changed:
        """What `to_text` wrote."""
        return cls(**{name: set(keys) for name, keys in json.loads(text).items()})


Mark = tuple[int, str]
"""A row of the table: its number and its stamp."""


class Slot:
    """What is kept from one transaction to the next, with what has been written since. One transaction has it at a time.

    Attributes:
        view: whatever whoever looks at the ledger has made of it; None for nothing.
        mark: the last change of other transactions that is in the view; None before the first.
        stale: what the transactions that had it have written, and the view may have otherwise.
        plan: the newest plan for placement when it was last asked for.
        checked: whether the transaction of the database that has it has looked for changes of others.
    """

    def __init__(self) -> None:
        self.view: object | None = None
        self.mark: Mark | None = None
        self.stale = Changed()
        self.plan: PlanRecord | None = None
        self.checked = False
