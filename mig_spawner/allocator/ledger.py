"""The ledger within one transaction: what is read once, and how a lease is moved.

A `Ledger` lives as long as its transaction. It reads leases, nodes and pods when first asked and keeps them in step with its
own moves, so that every rule of the same transaction sees the same facts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from mig_spawner.allocator.fleet import fleet_of, is_silent, occupied
from mig_spawner.allocator.foresight.ranking import ranking_of
from mig_spawner.allocator.quota.held import held_of
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import Holding, NodeRecord, Pod, Remnant, Transaction
from mig_spawner.allocator.store.plans import PlanRecord
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.held import Held
from mig_spawner.domain.lease import Active, Closed, Granted, Lease, Queued, Ready, Releasing
from mig_spawner.domain.policy import POLICIES, UNKNOWN, Demand, Ranking
from mig_spawner.domain.queue import Memory
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
    _holding: dict[str, Holding] | None = None
    _nodes: dict[str, NodeRecord] | None = None
    _pods: list[Pod] | None = None
    _usage: dict[str, tuple[UsageDocument, ...]] | None = None
    _remnants: list[Remnant] | None = None
    _fleet: list[GPUState] | None = None
    _by_node: tuple[list[GPUState], dict[str, list[GPUState]]] | None = None
    _owners: dict[str, str] | None = None
    _blind: bool | None = None
    _ranking: Ranking | None = None
    _held: Held | None = None
    passed_over: set[str] = field(default_factory=set)

    @property
    def now(self) -> datetime:
        return self.tx.now

    @property
    def holding(self) -> dict[str, Holding]:
        """Leases that hold slices, by id, in order of arrival."""
        if self._holding is None:
            self._holding = {lease.lease_id: lease for lease in self.tx.holding()}
        return self._holding

    @property
    def nodes(self) -> dict[str, NodeRecord]:
        if self._nodes is None:
            self._nodes = {node.name: node for node in self.tx.nodes()}
        return self._nodes

    @property
    def usage(self) -> dict[str, tuple[UsageDocument, ...]]:
        """What the devices of each node used when it last reported."""
        if self._usage is None:
            self._usage = self.tx.usage()
        return self._usage

    @property
    def pods(self) -> list[Pod]:
        if self._pods is None:
            self._pods = self.tx.pods()
        return self._pods

    @property
    def orphans(self) -> list[Pod]:
        """Pods that carry the label of a lease, but whose lease holds nothing here: it is unknown, or has ended."""
        return [pod for pod in self.pods if pod.lease_id not in self.holding]

    @property
    def blind(self) -> bool:
        """Pods are watched, but have not been listed since the allocator started: this ledger may be an old one, or a new one."""
        if self._blind is None:
            self._blind = self.setting.watches_pods and self.tx.pods_listed_at() is None
        return self._blind

    @property
    def remnants(self) -> list[Remnant]:
        if self._remnants is None:
            self._remnants = self.tx.remnants()
        return self._remnants

    @property
    def owners(self) -> dict[str, str]:
        """Which node a GPU belongs to, by `gpu_uuid`."""
        if self._owners is None:
            self._owners = self.tx.gpu_owners()
        return self._owners

    @property
    def fleet(self) -> list[GPUState]:
        """Every GPU as it is now, after the moves made so far."""
        if self._fleet is None:
            taken = occupied(self.holding.values(), self.remnants, self.pods)
            silent_after = self.setting.node_silent_after
            states = fleet_of(self.nodes.values(), self.owners, taken, self.now, silent_after, blind=self.blind)
            self._fleet = [state for state in states if state.gpu.gpu_uuid not in self.broken]
        return self._fleet

    @property
    def ranking(self) -> Ranking:
        """How places are ranked now: by the plan in the ledger, where the policy asks what people want."""
        if self._ranking is None:
            self._ranking = ranking_of(self.setting.policy, self.plan)
        return self._ranking

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
        if self._held is None:
            gpus = {uuid: gpu for node in self.nodes.values() for uuid, gpu in node.gpus.items()}
            self._held = held_of(self.holding.values(), gpus)
        return self._held

    def move(self, before: Lease, after: L, why: str) -> L:
        """Write a step and keep this view in step with it."""
        self.tx.move(before, after, who=self.who, why=why)
        self.steps.append((before, after))
        holding = self.holding
        if isinstance(after, (Granted, Ready, Active, Releasing)):
            holding[after.lease_id] = after
        else:
            holding.pop(after.lease_id, None)
        if not (isinstance(before, Queued) and isinstance(after, (Queued, Closed))):
            self._remnants = self._fleet = self._held = None
        return after

    def note_peak(self, lease: Holding, peak_memory_mib: int) -> None:
        """Write the most memory that the device of a lease was seen to use."""
        self.tx.put_peak(lease.lease_id, peak_memory_mib)
        self.holding[lease.lease_id] = replace(lease, peak_memory_mib=peak_memory_mib)

    def restore(self, lease: Active, why: str) -> None:
        """Write a lease that this ledger did not know, and keep this view in step with it.

        Raises:
            SliceTaken, HolderHasLease: nothing was written.
        """
        self.tx.restore(lease, who=self.who, why=why)
        self.holding[lease.lease_id] = lease
        self._fleet = self._held = None

    def forget(self) -> None:
        """Read nodes, pods and what follows from them again: this transaction has written them."""
        self._usage = None
        self._nodes = self._pods = self._remnants = self._fleet = self._owners = self._blind = None

    def exclude(self, gpu_uuid: str) -> None:
        """Ask no more for this GPU in this transaction."""
        self.broken.add(gpu_uuid)
        self._fleet = None

    def pod_of(self, lease_id: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.lease_id == lease_id), None)

    def gpus_of(self, node: str) -> list[GPUState]:
        """The part of the fleet that sits in a node."""
        fleet = self.fleet
        if self._by_node is None or self._by_node[0] is not fleet:
            by_node: dict[str, list[GPUState]] = defaultdict(list)
            for state in fleet:
                by_node[state.node].append(state)
            self._by_node = fleet, by_node
        return self._by_node[1].get(node, [])

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
