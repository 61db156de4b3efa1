"""What Prometheus sees. Names are noun_verb_unit; labels come from closed sets, but for the owner series, one per held device."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Sequence
from datetime import datetime
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mig_spawner.allocator.document import age
from mig_spawner.allocator.ledger import Ledger, instance_at
from mig_spawner.allocator.pool import pools_of
from mig_spawner.allocator.service import Desk, Steps
from mig_spawner.allocator.store.base import Transaction
from mig_spawner.domain.lease import Active, Closed, Granted, Queued, Ready, Releasing
from mig_spawner.domain.policy import stranded
from mig_spawner.wire.lease import LeaseState
from mig_spawner.wire.node import Health
from mig_spawner.wire.webhook import DeliveryState

_OPEN = [state.value for state in LeaseState if state is not LeaseState.CLOSED]


class Metrics:
    """Counters grow as things happen; gauges are read from the store when somebody asks, so replicas agree.

    Args:
        names_people: whether the owner series say whose a device is.
    """

    def __init__(self, *, names_people: bool = False) -> None:
        self._names_people = names_people
        self._reading = Lock()
        self.registry = CollectorRegistry()
        registry = self.registry
        self._grants = Counter("mig_lease_grants", "Leases granted a placement.", registry=registry)
        self._requeues = Counter("mig_lease_requeues", "Grants that could not be made.", registry=registry)
        self._ends = Counter("mig_lease_ends", "Leases closed.", ["reason"], registry=registry)
        self._gpu_seconds = Counter(
            "mig_lease_used_gpu_seconds", "Whole-GPU seconds of closed leases.", registry=registry
        )
        self._refusals = Counter(
            "mig_request_refusals", "Requests answered with a problem.", ["code"], registry=registry
        )
        self._duration = Histogram(
            "mig_request_duration_seconds",
            "Time to an answer; long polls include their wait.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._leases = Gauge("mig_lease_open_count", "Open leases.", ["state"], registry=registry)
        self._queue = Gauge("mig_queue_waiting_count", "Requests in the queue.", registry=registry)
        self._releasing = Gauge(
            "mig_lease_releasing_oldest_seconds", "Age of the oldest Releasing lease.", registry=registry
        )
        self._remnants = Gauge(
            "mig_instance_remnant_count", "Instances of closed leases still to be destroyed.", registry=registry
        )
        self._nodes = Gauge("mig_node_known_count", "Nodes that have ever reported.", registry=registry)
        self._silent = Gauge("mig_node_silent_count", "Nodes that are too long silent to count.", registry=registry)
        self._stranded = Gauge(
            "mig_gpu_stranded_ratio",
            "Part of a GPU that is free and of no use for the next request, as expected.",
            ["node", "gpu_uuid"],
            registry=registry,
        )
        self._pool_stranded = Gauge(
            "mig_pool_stranded_ratio",
            "Part of the GPUs of a pool that is free and of no use for the next request, as expected.",
            ["pool"],
            registry=registry,
        )
        self._plan = Gauge(
            "mig_plan_age_seconds", "Age of the plan that placement goes by; 0 without one.", registry=registry
        )
        self._orphans = Gauge(
            "mig_pod_orphan_count", "Pods with the label of a lease that have none.", registry=registry
        )
        self._deliveries = Gauge(
            "mig_webhook_delivery_count", "Deliveries to webhooks that are kept.", ["state"], registry=registry
        )
        self._pods = Gauge(
            "mig_pod_list_age_seconds", "Age of the newest list of pods; 0 without a pod watch.", registry=registry
        )

        self._owners = Gauge(
            "mig_lease_device_info",
            "Which lease has a device. UUID and GPU_I_ID are those of NVIDIA's dcgm-exporter.",
            ["lease", "node", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "mig_uuid", "user", "server"],
            registry=registry,
        )
        self._health = Gauge("mig_gpu_health_count", "GPUs by health.", ["health"], registry=registry)

    def count_steps(self, steps: Steps) -> None:
        """Count what a transaction has moved."""
        for before, after in steps:
            if isinstance(after, Granted):
                self._grants.inc()
            elif isinstance(before, Granted) and isinstance(after, Queued):
                self._requeues.inc()
            elif isinstance(after, Closed):
                self._ends.labels(after.reason.value).inc()
                self._gpu_seconds.inc(after.gpu_seconds)

    def count_refusal(self, code: str) -> None:
        self._refusals.labels(code).inc()

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """One answer. `route` is the name of the handler, never the path."""
        self._duration.labels(method, route, f"{status // 100}xx").observe(seconds)

    def exposition(self, desk: Desk) -> bytes:
        """The text that Prometheus scrapes."""
        with self._reading, desk.reading() as ledger:
            self._read_leases(ledger.tx)
            self._read_devices(ledger)
            self._read_placement(ledger)
            releasing = [lease.releasing_at for lease in ledger.holding.values() if isinstance(lease, Releasing)]
            self._releasing.set(_oldest(releasing, ledger.tx))
            self._remnants.set(len(ledger.remnants))
            self._nodes.set(len(ledger.nodes))
            self._silent.set(sum(ledger.is_silent(node) for node in ledger.nodes.values()))
            self._orphans.set(len(ledger.orphans))
            counts = ledger.tx.delivery_counts()
            for state in DeliveryState:
                self._deliveries.labels(state.value).set(sum(n for (_, s), n in counts.items() if s is state))
            self._pods.set(age(ledger.tx.pods_listed_at(), ledger.now).total_seconds())
            return generate_latest(self.registry)

    def _read_devices(self, ledger: Ledger) -> None:
        heard = {n.name: n.report for n in ledger.nodes.values() if n.report is not None and not ledger.is_silent(n)}
        counts = Counts(gpu.health for report in heard.values() for gpu in report.gpus)
        for health in Health:
            self._health.labels(health.value).set(counts[health])
        self._owners.clear()
        for lease in ledger.holding.values():
            if not isinstance(lease, Granted) and lease.device_uuid is not None and lease.grant.node in heard:
                self._owners.labels(*self._owner(ledger, lease)).set(1)

    def _read_placement(self, ledger: Ledger) -> None:
        plan, demand = ledger.plan, ledger.demand
        self._plan.set(0 if plan is None else age(plan.made_at, ledger.now).total_seconds())
        self._stranded.clear()
        self._pool_stranded.clear()
        for pool in pools_of(ledger, ledger.fleet):
            self._pool_stranded.labels(pool.pool).set(pool.stranded)
        for state in ledger.fleet:
            lost = stranded(state, demand)
            if lost is not None:
                self._stranded.labels(state.node, state.gpu.gpu_uuid).set(lost.part)

    def _owner(self, ledger: Ledger, lease: Ready | Active | Releasing) -> tuple[str, ...]:
        grant, number = lease.grant, ""
        gpu = ledger.reported_gpu(grant.node, grant.placement.gpu_uuid)
        if gpu is not None and grant.profile_id is not None:
            instance = instance_at(gpu, grant.placement, grant.profile_id)
            number = "" if instance is None else str(instance.gpu_instance_id)
        cut = grant.profile is not None
        people = (lease.holder.user_name or lease.holder.user_id, lease.holder.server_name)
        return (
            lease.lease_id,
            grant.node,
            grant.placement.gpu_uuid,
            number,
            str(grant.profile) if cut else "",
            str(lease.device_uuid) if cut else "",
            *(people if self._names_people else ("", "")),
        )

    def _read_leases(self, tx: Transaction) -> None:
        counts = tx.counts()
        for state in _OPEN:
            self._leases.labels(state).set(counts.get(state, 0))
        self._queue.set(counts.get(LeaseState.QUEUED, 0))


def _oldest(times: Sequence[datetime], tx: Transaction) -> float:
    return max((age(at, tx.now).total_seconds() for at in times), default=0.0)
