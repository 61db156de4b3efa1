"""What Prometheus sees. Names are noun_verb_unit; labels come from closed sets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from mig_spawner.allocator.document import age
from mig_spawner.allocator.service import Desk, Steps
from mig_spawner.allocator.store.base import Transaction
from mig_spawner.domain.lease import Closed, Granted, Queued, Releasing
from mig_spawner.wire.lease import LeaseState
from mig_spawner.wire.webhook import DeliveryState

_OPEN = [state.value for state in LeaseState if state is not LeaseState.CLOSED]


class Metrics:
    """Counters grow as things happen; gauges are read from the store when somebody asks, so replicas agree."""

    def __init__(self) -> None:
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
        self._orphans = Gauge(
            "mig_pod_orphan_count", "Pods with the label of a lease that have none.", registry=registry
        )
        self._deliveries = Gauge(
            "mig_webhook_delivery_count", "Deliveries to webhooks that are kept.", ["state"], registry=registry
        )
        self._pods = Gauge(
            "mig_pod_list_age_seconds", "Age of the newest list of pods; 0 without a pod watch.", registry=registry
        )

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
        with desk.reading() as ledger:
            self._read_leases(ledger.tx)
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

    def _read_leases(self, tx: Transaction) -> None:
        counts = tx.counts()
        for state in _OPEN:
            self._leases.labels(state).set(counts.get(state, 0))
        self._queue.set(counts.get(LeaseState.QUEUED, 0))


def _oldest(times: Sequence[datetime], tx: Transaction) -> float:
    return max((age(at, tx.now).total_seconds() for at in times), default=0.0)
