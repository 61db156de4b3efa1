"""What the simulator says is what the allocator does: the same sequence of events, the same placements."""

from __future__ import annotations

import random
from datetime import timedelta
from heapq import heappop, heappush
from typing import Final

import pytest

from mig_spawner.allocator.foresight.ranking import ranking_of
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.queue.patience import earmark
from mig_spawner.allocator.queue.serve import serve_queue
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.memory import MemoryStore
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.lease import EndReason, Granted, PodFate
from mig_spawner.domain.policy import POLICIES, make_plan
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.planning.fleet import Group, dynamic, gpus_of
from mig_spawner.planning.rule import RULES
from mig_spawner.planning.scenario import demand_of
from mig_spawner.planning.simulation import Course, run
from mig_spawner.planning.trace import Arrival
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRequest
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import EPOCH, Clock, gpu_document

EVENTS: Final = 5000
QUEUED: Final = 120
WANTED: Final[list[Request]] = [
    *(SliceRequest(ProfileName.parse(name)) for name in ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")),
    *(SliceRequest(ProfileName.parse(name)) for name in ("1g.6gb", "2g.12gb")),
    MemoryRequest(15),
    WholeRequest(),
]  # fmt: skip
WEIGHTS: Final = [9, 3, 4, 3, 2, 1, 5, 3, 2, 1]


def trace(arrivals: int) -> list[Arrival]:
    dice, now, found = random.Random(5), 0.0, []
    for number in range(arrivals):
        now += dice.expovariate(1.0)
        request = dice.choices(WANTED, WEIGHTS)[0]
        found.append(Arrival(round(now, 3), round(dice.lognormvariate(2, 1), 3), request, holder=f"u{number}"))
    return found


class Allocator:
    """The service in process, on a ledger in memory. Its one node is never heard of again: leases stay Granted."""

    def __init__(self, store: MemoryStore) -> None:
        self.desk = Desk(store, Setting(policy="auto", node_silent_after=timedelta(days=9999)), lambda steps: None)
        self.leases = LeaseService(self.desk)

    def acquire(self, arrival: Arrival) -> LeaseDocument:
        return self.leases.acquire(asked(arrival, wait_budget=0), who="hub").document

    def end(self, lease_id: str) -> None:
        """It is given back, its pod is gone, and the agent has destroyed its instance: all at once."""
        with self.desk.writing("hub") as ledger:
            give_back(ledger, lease_id)


def asked(arrival: Arrival, **more: object) -> LeaseRequest:
    """What an arrival asks the allocator for."""
    wanted: dict[str, object] = {"holder": HolderDocument(user_id=arrival.holder), **more}
    if isinstance(arrival.request, SliceRequest):
        wanted["accelerator_partition_type"] = str(arrival.request.profile)
    elif isinstance(arrival.request, MemoryRequest):
        wanted["min_memory"] = arrival.request.min_memory_gb
    return LeaseRequest.model_validate(wanted)


def give_back(ledger: Ledger, lease_id: str) -> None:
    lease = ledger.tx.lease(lease_id)
    assert isinstance(lease, Granted)
    released = ledger.move(lease, transition.release(lease, EndReason.STOPPED, PodFate.GONE, ledger.now), "t")
    ledger.move(released, transition.close(released, ledger.now), "t")
    for remnant in ledger.tx.remnants():
        ledger.tx.drop_remnant(remnant)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_simulator_and_allocator_place_5000_events_alike() -> None:
    gpus = gpus_of([Group("a100-80gb", 2), Group("a30-24gb", 1)])
    arrivals = trace(EVENTS)
    demand = demand_of(arrivals, gpus)
    store = MemoryStore(clock=Clock())
    store.open()
    allocator = Allocator(store)
    documents = tuple(gpu_document(gpu) for gpu in gpus)
    report = NodeReport(agent_version="t", boot_id="b", applied_generation=0, simulated=True, gpus=documents)
    with store.writing() as tx:
        tx.put_report("node-0", report)
        assert tx.put_plan(1, 0, make_plan(gpus, demand, arrivals=500))
        ranking = ranking_of("auto", tx.plan())

    simulated: dict[int, Decision | None] = {}
    run(arrivals, dynamic(gpus), Course(ranking), placed=simulated.__setitem__)

    events, ends = 0, list[tuple[float, int, str]]()
    for number, arrival in enumerate(arrivals):
        while ends and ends[0][0] <= arrival.at:
            _, _, lease_id = heappop(ends)
            allocator.end(lease_id)
            events += 1
        lease = allocator.acquire(arrival)
        events += 1
        expected, granted = simulated[number], lease.placement
        told = None if granted is None else (granted.gpu_uuid, granted.start, granted.size)
        said = None if expected is None else (expected.gpu.gpu_uuid, expected.placement.start, expected.placement.size)
        assert told == said, f"event {events}, {arrival.request}"
        if granted is not None:
            heappush(ends, (arrival.at + arrival.duration, number, lease.lease_id))
        if events >= EVENTS:
            break
    assert events >= EVENTS
    assert 0.2 < sum(d is None for d in simulated.values()) / len(simulated) < 0.8, "neither empty nor always full"
    store.close()


Placed = tuple[int, str, int, int]


@pytest.mark.parametrize("rule", ["queue", "queue-agreed"])
def test_simulator_and_allocator_serve_a_queue_alike(rule: str) -> None:
    """Who is served when, and where, with people passing each other and GPUs earmarked."""
    gpus = gpus_of([Group("a100-80gb", 2), Group("a30-24gb", 1)])
    arrivals = [
        Arrival(300 * a.at, max(round(300 * a.duration), 60), a.request, holder=a.holder) for a in trace(QUEUED)
    ]
    simulated: list[Placed] = []

    def placed(number: int, decision: Decision | None) -> None:
        if decision is not None:
            place = decision.placement
            simulated.append((number, place.gpu_uuid, place.start, place.size))

    (outcome,) = run(arrivals, dynamic(gpus), Course(POLICIES["best-fit"], rule=RULES[rule]), placed=placed)
    assert outcome.starved > 3

    clock = Clock()
    store = MemoryStore(clock=clock)
    store.open()
    setting = Setting(policy="best-fit", node_silent_after=timedelta(days=9999), settle_after=timedelta(0))
    desk = Desk(store, setting, lambda steps: None)
    leases, allocated, numbers = LeaseService(desk), list[Placed](), dict[str, int]()
    ends: list[tuple[float, str]] = []
    documents = tuple(gpu_document(gpu) for gpu in gpus)
    with store.writing() as tx:
        tx.put_report("node-0", NodeReport(
            agent_version="t", boot_id="b", applied_generation=0, simulated=True, gpus=documents
        ))  # fmt: skip

    def note(now: float) -> None:
        with desk.reading() as ledger:
            new = [lease for lease in ledger.holding.values() if lease.lease_id in numbers]
        for lease in sorted(new, key=lambda lease: lease.grant.generation):
            place, number = lease.grant.placement, numbers.pop(lease.lease_id)
            allocated.append((number, place.gpu_uuid, place.start, place.size))
            heappush(ends, (now + arrivals[number].duration, lease.lease_id))

    for number, arrival in enumerate(arrivals):
        while ends and ends[0][0] <= arrival.at:
            now, lease_id = heappop(ends)
            clock.now = EPOCH + timedelta(seconds=now)
            with desk.writing("hub") as ledger:
                give_back(ledger, lease_id)
                earmark(ledger)
                serve_queue(ledger)
            note(now)
        clock.now = EPOCH + timedelta(seconds=arrival.at)
        agreed: dict[str, object] = {"duration": arrival.duration} if rule == "queue-agreed" else {}
        with desk.writing("hub") as ledger:
            earmark(ledger)
        lease_document = leases.acquire(asked(arrival, **agreed), who="hub").document
        numbers[lease_document.lease_id] = number
        note(arrival.at)
    assert allocated == simulated
    store.close()
