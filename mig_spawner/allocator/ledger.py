"""The ledger within one transaction: what is read once, and how a lease is moved.

A `Ledger` lives as long as its transaction. Leases, nodes and pods it has from the view that is kept between transactions, which is
brought up to date when it is first asked and kept in step with its own moves, so that every rule of the same transaction sees the
same facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from mig_spawner.allocator.fleet import is_silent
from mig_spawner.allocator.foresight.ranking import ranking_of
from mig_spawner.allocator.kept.facts import Facts
from mig_spawner.allocator.kept.fleet import Fleet
from mig_spawner.allocator.kept.view import View, view_of
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import Holding, NodeRecord, Pod, Remnant, Transaction
from mig_spawner.allocator.store.plans import PlanRecord
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.held import Held
from mig_spawner.domain.lease import Active, Granted, Lease, Queued, Ready, Releasing
from mig_spawner.domain.policy import POLICIES, UNKNOWN, Demand, Index, Ranking
from mig_spawner.domain.queue import Memory, hidden
from mig_spawner.domain.request import DeviceRequest, Request
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.node import GPUDocument, Health, InstanceDocument, UsageDocument

if TYPE_CHECKING:
    from mig_spawner.allocator.queue.forecasts import Forecasts

L = TypeVar("L", bound=Lease)


@dataclass
class Ledger:
    """One transaction's view.

    Attributes:
        who: written into the audit rows.
        menu: what may be had, the same throughout the transaction.
        steps: the moves of this transaction, for counting after its commit.
        passed_over: leases in the queue for which a quota was against what could have been granted.
        broken: GPUs on which this transaction could not write a grant; never asked twice.
        memory: what passes over the queue remember of the fleet, a hint.
        forecasts: what this process can say of when those who wait will begin; None where nobody asks.
        reads_only: nobody waits for the end of this transaction but who asked.
    """

    tx: Transaction
    setting: Setting
    who: str
    menu: Menu = field(default_factory=Menu)
    steps: list[tuple[Lease, Lease]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    memory: Memory = field(default_factory=Memory)
    reads_only: bool = False
    forecasts: Forecasts | None = None
    _view: View | None = None
    _raw: bool = True
    _usage: dict[str, tuple[UsageDocument, ...]] = field(default_factory=dict)
    _blind: bool | None = None
    _ranking: Ranking | None = None
    passed_over: set[str] = field(default_factory=set)

    @property
    def now(self) -> datetime:
        return self.tx.now

    @property
    def facts(self) -> Facts:
        """What the ledger says, after the moves made so far."""
        return self._kept_view.facts

    @property
    def _kept_view(self) -> View:
        if self._view is None:
            self._view = view_of(self.tx, self.setting)
        return self._view

    @property
    def settled_facts(self) -> Facts:
        """The same, once it is known what time has changed of them."""
        return self.kept.facts

    @property
    def kept(self) -> Fleet:
        """What follows from it for placement."""
        view = self._kept_view
        touched = view.facts.touched
        if self._raw or touched.gpus or touched.reported:
            view.fleet.bring_up(self.now, blind=self.blind)
            self._raw = False
        return view.fleet

    @property
    def holding(self) -> dict[str, Holding]:
        """Leases that hold slices, by id."""
        return self.facts.holding

    def open_leases(self) -> Iterator[Lease]:
        """All of them, in no order."""
        yield from self.holding.values()
        with closing(self.tx.queue()) as queue:
            yield from queue

    @property
    def nodes(self) -> dict[str, NodeRecord]:
        """All nodes, in the order of names."""
        return self.facts.nodes

    def usage_of(self, node: str) -> tuple[UsageDocument, ...]:
        """What the devices of a node used when it last reported."""
        if node not in self._usage:
            self._usage[node] = self.tx.usage(node)
        return self._usage[node]

    @property
    def pods(self) -> Collection[Pod]:
        return self.facts.pods.values()

    @property
    def orphans(self) -> Collection[Pod]:
        """Pods that carry the label of a lease, but whose lease holds nothing here: it is unknown, or has ended."""
        return self.facts.orphans.values()

    @property
    def blind(self) -> bool:
        """Pods are watched, but have not been listed since the allocator started: this ledger may be an old one, or a new one."""
        if self._blind is None:
            self._blind = self.setting.watches_pods and self.tx.pods_listed_at() is None
        return self._blind

    @property
    def remnants(self) -> Collection[Remnant]:
        return self.facts.remnants.values()

    @property
    def owners(self) -> Mapping[str, str]:
        """Which node a GPU belongs to, by `gpu_uuid`."""
        return self.facts.owners

    @property
    def fleet(self) -> list[GPUState]:
        """Every GPU as it is now, after the moves made so far. Where the kinds of GPUs will do, ask `kinds`."""
        return [state for state in self.kept.in_order() if state.gpu.gpu_uuid not in self.broken]

    @property
    def kinds(self) -> list[tuple[GPUState, int]]:
        """One GPU of each kind that there is, and how many."""
        return list(self.kept.census)

    def serving(self, requests: Iterable[Request]) -> list[GPUState]:
        """As many GPUs as it takes to know whether some GPU can serve these, now or ever, and how."""
        named = (self.kept.with_device(r.mig_uuid) for r in requests if isinstance(r, DeviceRequest))
        return [*(state for state, _ in self.kinds), *(state for state in named if state is not None)]

    @property
    def ranking(self) -> Ranking:
        """How places are ranked now: by the plan in the ledger, where the policy asks what people want."""
        if self._ranking is None:
            self._ranking = ranking_of(self.setting.policy, self.plan)
        return self._ranking

    def index(self) -> Index:
        """Every GPU under that ranking, to look for places; whoever has it may put on it what it thinks of."""
        index = self.kept.index(self.ranking)
        for state in self.kept.in_order() if self.broken else ():
            if state.gpu.gpu_uuid in self.broken:
                index.put(hidden(state))
        return index

    @property
    def plan(self) -> PlanRecord | None:
        """The plan that placement goes by; None before the first, and for policies that do not ask what people want."""
        return self.tx.plan() if POLICIES[self.setting.policy].heeds_demand else None

    @property
    def demand(self) -> Demand:
        """What people ask for, as that plan has it."""
        plan = self.plan
        return UNKNOWN if plan is None else plan.plan.demand

    @property
    def held(self) -> Held:
        """What is held, added up for quotas, after the moves made so far."""
        return self.facts.held

    def move(self, before: Lease, after: L, why: str) -> L:
        """Write a step and keep this view in step with it."""
        self.tx.move(before, after, who=self.who, why=why)
        self.steps.append((before, after))
        holds = after if isinstance(after, (Granted, Ready, Active, Releasing)) else None
        if holds is not None or not isinstance(before, Queued):
            self.facts.put_lease(after.lease_id, holds)
            self.tx.slot.stale.leases.discard(after.lease_id)
            if self.tx.slot.stale.remnants:
                self._view = None  # it has left something: to be read before anybody looks
        return after

    def exchange(self, steps: Sequence[tuple[Holding, Holding, str]]) -> None:
        """Write leases at other places than they had, all at once, each with why, and keep this view in step with it.

        Raises:
            SliceTaken: somebody else holds one of the places; nothing was written.
        """
        self.tx.exchange(steps, who=self.who)
        for before, after, _ in steps:
            self.steps.append((before, after))
            self.facts.put_lease(after.lease_id, after)
            self.tx.slot.stale.leases.discard(after.lease_id)

    def lease(self, lease_id: str) -> Lease | None:
        """A lease, open or closed."""
        if self._view is None or lease_id in self.tx.slot.stale.leases:
            return self.tx.lease(lease_id)
        return self._view.facts.holding.get(lease_id) or self.tx.lease(lease_id)

    def note_peak(self, lease: Holding, peak_memory_mib: int) -> None:
        """Write the most memory that the device of a lease was seen to use."""
        self.tx.put_peak(lease.lease_id, peak_memory_mib)
        self.facts.put_lease(lease.lease_id, replace(lease, peak_memory_mib=peak_memory_mib))

    def restore(self, lease: Active, why: str) -> None:
        """Write a lease that this ledger did not know, and keep this view in step with it.

        Raises:
            SliceTaken, HolderHasLease: nothing was written.
        """
        self.tx.restore(lease, who=self.who, why=why)
        self.facts.put_lease(lease.lease_id, lease)

    def forget(self) -> None:
        """Read again what this transaction has written."""
        self._usage.clear()
        self._view = self._blind = None
        self._raw = True

    def exclude(self, gpu_uuid: str) -> None:
        """Ask no more for this GPU in this transaction."""
        self.broken.add(gpu_uuid)

    def pod_of(self, lease_id: str) -> Pod | None:
        return next(iter(self.facts.pods_of(lease_id)), None)

    def gpus_of(self, node: str) -> list[GPUState]:
        """The part of the fleet that sits in a node."""
        return [state for state in self.kept.of_node(node) if state.gpu.gpu_uuid not in self.broken]

    def orphan_on(self, placement: Placement) -> Pod | None:
        """A pod without a lease that says it lives on some of these memory slices."""
        return next((p for p in self.orphans if p.claim is not None and p.claim.placement.overlaps(placement)), None)

    def is_silent(self, node: NodeRecord) -> bool:
        return is_silent(node, self.now, self.setting.node_silent_after)

    def reported_gpu(self, node: str, gpu_uuid: str) -> GPUDocument | None:
        """A GPU as its node last showed it; None when it did not, or could not read it. One that is suspect was read whole."""
        record = self.nodes.get(node)
        if record is None or record.report is None:
            return None
        document = next((gpu for gpu in record.report.gpus if gpu.gpu_uuid == gpu_uuid), None)
        return None if document is None or document.health is Health.BAD else document


def instance_at(gpu: GPUDocument, placement: Placement, profile_id: int) -> InstanceDocument | None:
    """The instance that sits exactly there and has that profile."""
    wanted = (placement.start, placement.size, profile_id)
    return next((i for i in gpu.instances if (i.start, i.size, i.profile_id) == wanted), None)


def processes_on(gpu: GPUDocument, lease: Holding) -> int | None:
    """How many processes run on what a lease holds; None if that cannot be known."""
    profile_id = lease.grant.profile_id
    if profile_id is None:
        counts = [i.processes for i in gpu.instances] if gpu.mig_enabled is True else [gpu.processes]
        return None if None in counts else sum(count for count in counts if count is not None)
    instance = instance_at(gpu, lease.grant.placement, profile_id)
    return 0 if instance is None else instance.processes
