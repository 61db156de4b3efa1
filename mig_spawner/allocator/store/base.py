"""The port to the ledger: what a store promises, in the words of the domain.

A `Store` hands out transactions. A writing transaction is alone: from its first line to its commit no other one, of this
process or of another replica, writes. So whoever reads, decides and writes inside one decides on facts. What it wrote is on
disk when it returns, whole, or not at all: a crash at any moment leaves the ledger as it was before or after.

Two constraints hold whatever the code above does: no two placements share a memory slice of a GPU (`SliceTaken`), and no
holder has two open leases (`HolderHasLease`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta

from mig_spawner.allocator.claim import Claim
from mig_spawner.allocator.store.change import Changed, Slot
from mig_spawner.allocator.store.history import History
from mig_spawner.allocator.store.outbox import Outbox
from mig_spawner.allocator.store.plans import Plans
from mig_spawner.allocator.store.post import Post
from mig_spawner.allocator.store.reshapes import Reshapes
from mig_spawner.domain.gpu import GPU, Placement
from mig_spawner.domain.lease import Active, Granted, Lease, Queued, Ready, Releasing
from mig_spawner.domain.quota import Spell
from mig_spawner.domain.rule import Person
from mig_spawner.wire.node import DesiredNode, NodeReport, UsageDocument

Holding = Granted | Ready | Active | Releasing
"""The leases that hold memory slices."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is known of a node.

    Attributes:
        report: its last inventory; None before the first.
        gpus: the GPUs of that report as the domain sees them, by `gpu_uuid`.
        reported_at: when that arrived.
        desired: what the node was last told to look like.
        cordoned: an admin wants nothing more granted here.
    """

    name: str
    report: NodeReport | None
    gpus: Mapping[str, GPU]
    reported_at: datetime | None
    desired: DesiredNode
    cordoned: bool


@dataclass(frozen=True, slots=True)
class Remnant:
    """A GPU instance made for a lease that is over, until its node has shown that it is gone. Its slices stay held.

    Attributes:
        generation: the lease stopped wanting it here; only a report made after a later one proves that it is gone.
    """

    node: str
    placement: Placement
    profile_id: int
    lease_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that carries a lease label and has not ended.

    Attributes:
        lease_id: as its label says; the ledger need not know it.
        placement: of the lease with that id, open or closed; None when it never had one.
        device_uuid: what the pod was told to see; None if it does not say.
        since: when the allocator first saw it.
        claim: what it says of its lease; None if that cannot be read.
        trouble: why it has no open lease, in words; empty when it has one, or when nobody has looked yet.
    """

    uid: str
    lease_id: str
    namespace: str
    name: str
    phase: str
    device_uuid: str | None
    since: datetime
    placement: Placement | None = None
    claim: Claim | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """What a closed lease held, and for whom. `profile`: None for a whole GPU."""

    person: Person
    profile: str | None
    spell: Spell


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change of a lease. `before` is None for its arrival."""

    lease_id: str
    at: datetime
    who: str
    before: str | None
    after: str
    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Where every open lease and every node stands, at one revision of the ledger.

    Attributes:
        revision: grows with every change of a lease or of what a node should look like.
        leases: state and place in the queue (0 when not queued) by lease id. A lease that is not there is closed.
        nodes: generation of the desired state by node.
    """

    revision: int
    leases: dict[str, tuple[str, int]]
    nodes: dict[str, int]


class Transaction(Outbox, Plans, Post, History, Reshapes, ABC):
    """One look at the ledger, or one change of it.

    Attributes:
        now: the database's time, the same throughout the transaction.
        revision: of the ledger as this transaction found it.
        slot: what is kept from one transaction to the next.
    """

    now: datetime
    revision: int
    slot: Slot

    # Views that are kept

    @abstractmethod
    def changed(self) -> Changed | None:
        """What may be another by now than in the view in the slot, since whoever asked last: what others have written, this transaction
        itself, and those whose changes were undone. None for everything."""

    # Leases

    @abstractmethod
    def lease(self, lease_id: str) -> Lease | None:
        """A lease, open or closed."""

    @abstractmethod
    def open_lease(self, user_id: str, server_name: str) -> Lease | None:
        """The open lease of a holder. There is at most one."""

    @abstractmethod
    def open_leases(
        self,
        *,
        user_id: str | None = None,
        server_name: str | None = None,
        user_name: str | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int | None = None,
    ) -> list[Lease]:
        """Open leases in order of arrival, of everybody or of those that match: those after a time of arrival and an id, which tells
        apart those of one moment; at most so many."""

    @abstractmethod
    def holding(self, lease_ids: Collection[str] | None = None) -> list[Holding]:
        """The leases that hold memory slices, in order of arrival: all, or those of these."""

    @abstractmethod
    def queue(self) -> Generator[Queued, None, None]:
        """Those who wait, the greatest priority first and within one in order of arrival. Read lazily: stop when you have seen
        enough, and write only afterwards."""

    @abstractmethod
    def waits_over(self) -> list[Queued]:
        """Those who wait and are not ready to wait any longer."""

    @abstractmethod
    def waiting_since(self, since: datetime) -> list[Queued]:
        """Those who came at this time or before and still wait, in the order of the queue."""

    @abstractmethod
    def earmarks(self) -> dict[str, str]:
        """Which GPU is earmarked for which lease that waits: `lease_id` by `gpu_uuid`."""

    @abstractmethod
    def held_seconds(self) -> list[float]:
        """How long the leases were held that ended last, of their holder's accord or at their end."""

    @abstractmethod
    def avoiding(self) -> list[Queued]:
        """Those who wait and avoid some GPU."""

    @abstractmethod
    def bound(self) -> list[Queued]:
        """Those who wait and are wanted on one node alone."""

    @abstractmethod
    def queue_place(self, lease_id: str) -> tuple[int, int]:
        """Place in the queue, 1 is next and 0 not in it; and how long the queue is."""

    @abstractmethod
    def queue_length(self) -> int: ...

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many open leases there are by state."""

    @abstractmethod
    def add(self, lease: Queued, *, who: str, why: str) -> None:
        """Put a new lease at the end of the queue, with its audit row.

        Raises:
            HolderHasLease: its holder has an open one already. The transaction can only be given up then.
        """

    @abstractmethod
    def move(self, before: Lease, after: Lease, *, who: str, why: str) -> None:
        """Write one step of a lease's life, with its audit row.

        A step into Granted takes the memory slices of its placement. A step out of a grant (back to Queued, or Closed) gives
        them free, except those of an instance that was cut for the lease: they turn into a `Remnant` and stay taken.

        Raises:
            SliceTaken: a slice of the placement is held; nothing of the step was written.
            InvalidTransition: the stored lease is not in the state of `before`.
        """

    @abstractmethod
    def exchange(self, steps: Sequence[tuple[Holding, Holding, str]], *, who: str) -> None:
        """Write leases at other places than they had, all at once, so that one may have the place of another; an audit row each, with the
        reason that stands beside it. None of them is cut for its lease, and each stays in its state.

        Raises:
            SliceTaken: a slice of a new place is held by somebody else; nothing was written.
            InvalidTransition: a stored lease is not in the state it is thought to be in.
        """

    @abstractmethod
    def restore(self, lease: Active, *, who: str, why: str) -> None:
        """Write a lease that this ledger never knew or has lost, with the memory slices of its placement and one audit row.

        Raises:
            SliceTaken: a slice of the placement is held; nothing was written.
            HolderHasLease: its holder has an open lease already; nothing was written.
        """

    @abstractmethod
    def note(self, lease: Holding, *, who: str, why: str) -> None:
        """Leave an audit row of a lease that stays where it is."""

    @abstractmethod
    def touch(self, lease: Active) -> None:
        """Write `seen_at` of an Active lease. A heartbeat is no change: it leaves no audit row."""

    @abstractmethod
    def put_peak(self, lease_id: str, peak_memory_mib: int) -> None:
        """Write the most memory that the device of a lease was seen to use. Like a heartbeat it leaves no audit row."""

    @abstractmethod
    def requeued_at(self, lease_id: str) -> datetime | None:
        """When a lease last went back to the queue."""

    @abstractmethod
    def audit(self, lease_id: str | None = None) -> list[AuditRow]:
        """Every change of a lease, or of all, oldest first."""

    # What closed leases have held

    @abstractmethod
    def closed_seconds(self, since: datetime, *, person: str | None = None) -> list[tuple[Person, float]]:
        """GPU-seconds that leases which are closed now held after a moment, of everybody or of one person. The same person comes
        more than once, and may come with less than nothing: only the sums are true."""

    @abstractmethod
    def closed_spells(self, since: datetime, *, until: datetime | None = None, person: str | None = None) -> list[Past]:
        """What each of them held between two moments, in the order in which they closed."""

    # What is left of leases

    @abstractmethod
    def remnants(self, gpu_uuids: Collection[str] | None = None) -> list[Remnant]:
        """All, or those on these GPUs."""

    @abstractmethod
    def drop_remnant(self, remnant: Remnant) -> None:
        """It is gone: give its slices free."""

    # Nodes

    @abstractmethod
    def nodes(self, names: Collection[str] | None = None) -> list[NodeRecord]:
        """All nodes by name, or those of these that are known."""

    @abstractmethod
    def node(self, name: str) -> NodeRecord | None: ...

    @abstractmethod
    def usage(self, node: str) -> tuple[UsageDocument, ...]:
        """What the devices of a node used when it last reported. Its `report` goes without it."""

    @abstractmethod
    def gpu_owners(self, gpu_uuids: Collection[str] | None = None) -> dict[str, str]:
        """Which node a GPU belongs to, by `gpu_uuid`: all GPUs, or those of these that some node has."""

    @abstractmethod
    def put_report(self, name: str, report: NodeReport) -> None:
        """Replace the inventory of a node, which need not be known yet, and make it the owner of the reported GPUs and no others."""

    @abstractmethod
    def put_desired(self, name: str, desired: DesiredNode) -> None: ...

    @abstractmethod
    def put_cordoned(self, name: str, cordoned: bool) -> None: ...

    @abstractmethod
    def drop_node(self, name: str) -> None:
        """Forget a node and its GPUs. Nothing of ours may be left on it."""

    @abstractmethod
    def next_generation(self) -> int:
        """The next number of the one counter of grants and desired states. It never repeats, not even over a ledger that was
        lost or is an old copy: at each start it is at least the seconds since 2025, so that no agent can quote a number that
        is still to come."""

    # Pods

    @abstractmethod
    def pods(self, uids: Collection[str] | None = None) -> list[Pod]:
        """All, or those of these that are known."""

    @abstractmethod
    def put_pod(self, pod: Pod) -> None: ...

    @abstractmethod
    def drop_pod(self, uid: str) -> None: ...

    @abstractmethod
    def pods_listed_at(self) -> datetime | None:
        """When the newest complete list of pods was begun; None if there never was one."""

    @abstractmethod
    def put_pods_listed_at(self, at: datetime | None) -> None: ...

    # Replicas

    @abstractmethod
    def take_turn(self, task: str, every: timedelta) -> bool:
        """Whether it is time for a task that one replica does for all, at most `every` so often. Who is told yes does it, in this
        transaction; the others are told no."""

    # Watching

    @abstractmethod
    def progress(self) -> Progress: ...


class Store(ABC):
    """The ledger. Safe to use from several threads; every method blocks."""

    @abstractmethod
    def open(self) -> None:
        """Make the schema in an empty database, and prepare. Call it once, before anything else.

        Raises:
            StoreUnavailable: the database cannot be reached, or has the schema of an older version (which has to be upgraded first) or
                of a newer one.
        """

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction that may write; committed at the end of the block, undone when the block raises."""

    @abstractmethod
    def reading(self, *, view: bool = False) -> AbstractContextManager[Transaction]:
        """A transaction that sees one state of the ledger and must not write.

        Args:
            view: it has the slot of those who read, after whoever has it now; otherwise an empty one of its own.
        """

    @abstractmethod
    def revision(self) -> int:
        """The revision now. Cheap."""

    @property
    @abstractmethod
    def installation_id(self) -> str:
        """Names this ledger; made with it."""

    @abstractmethod
    def secret(self, purpose: str) -> bytes:
        """32 secret bytes for a purpose; the same after every restart and on every replica."""
