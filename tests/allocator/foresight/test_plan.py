"""Plans for placement: when one is made, where it stands, and that all replicas place by the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mig_spawner.allocator.foresight import loop as loops
from mig_spawner.allocator.foresight.codec import (
    jobs_from_text,
    jobs_to_text,
    kinds_from_text,
    kinds_to_text,
    plan_from_text,
    plan_to_text,
)
from mig_spawner.allocator.foresight.due import EVERY, due
from mig_spawner.allocator.foresight.loop import Foresight
from mig_spawner.allocator.foresight.ranking import ranking_of
from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.memory import MemoryStore
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.domain.policy import POLICIES, UNKNOWN, Demand, Plan, make_plan
from mig_spawner.domain.policy.priced.plan import CANDIDATES, candidate, jobs, kind_of, plan_kind
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import StoreError
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import HolderDocument, LeaseRelease, LeaseRequest
from mig_spawner.wire.node import NodeReport
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import EPOCH, Rig, gpu_document

A30 = find_model("a30-24gb").gpu("GPU-0")
DEMAND = Demand.of({ProfileName(1, 6): 3, ProfileName(2, 12): 1})


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore(clock=lambda: EPOCH)
    store.open()
    yield store
    store.close()


def desk(store: MemoryStore, policy: str = "auto") -> Desk:
    return Desk(store, Setting(policy=policy, queue_limit=10_000), lambda steps: None)


def report(store: MemoryStore, *models: str) -> None:
    gpus = tuple(gpu_document(find_model(model).gpu(f"GPU-{n}")) for n, model in enumerate(models))
    document = NodeReport(agent_version="t", boot_id="b", applied_generation=0, simulated=True, gpus=gpus)
    with store.writing() as tx:
        tx.put_report("n1", document)


def ask(store: MemoryStore, count: int, **wanted: Any) -> None:
    service = LeaseService(desk(store))
    for number in range(count):
        holder = HolderDocument(user_id=f"u{number}", server_name=str(wanted))
        seen = service.acquire(LeaseRequest(holder=holder, wait_budget=0, **wanted), who="t")
        release = LeaseRelease(reason=EndReason.STOPPED, pod=PodFate.GONE)
        service.release(seen.document.lease_id, release, who="t")


async def in_thread(function: Callable[[], object]) -> object:
    return await asyncio.to_thread(function)


def test_plans_and_jobs_are_read_back_as_they_were_written() -> None:
    plan = make_plan([A30], DEMAND, arrivals=300)
    again = plan_from_text(plan_to_text(plan))
    assert again.demand == plan.demand
    for kind, made in plan.kinds.items():
        assert dict(again.kinds[kind].worth) == dict(made.worth)
        assert again.kinds[kind].winner == made.winner
    assert plan_to_text(again) == plan_to_text(plan)
    assert kinds_to_text(kinds_from_text(kinds_to_text(plan.kinds))) == kinds_to_text(plan.kinds)
    work = jobs([A30, A30], DEMAND)
    assert jobs_from_text(jobs_to_text(work, ("priced",))) == (work, ("priced",))


def test_a_plan_is_in_the_ledger_once_and_old_ones_go(store: MemoryStore) -> None:
    with store.writing() as tx:
        assert tx.plan() is None
        assert not tx.put_plan(2, 0, Plan()), "one more than the newest"
        assert all(tx.put_plan(number, number * 10, Plan(DEMAND)) for number in range(1, 15))
        assert not tx.put_plan(14, 0, Plan()), "another replica was first"
        record = tx.plan()
    assert record is not None
    assert (record.number, record.arrivals, record.plan, record.made_at) == (14, 140, Plan(DEMAND), EPOCH)
    with store.reading() as tx:
        assert tx.plan() is record
    assert ranking_of("auto", record) is ranking_of("auto", record)


def test_no_plan_without_gpus_or_for_a_policy_that_does_not_ask(store: MemoryStore) -> None:
    with desk(store).reading() as ledger:
        assert due(ledger) is None
    report(store, "a30-24gb")
    with desk(store, "best-fit").reading() as ledger:
        assert due(ledger) is None
    with desk(store, "share-weighted").reading() as ledger:
        found = due(ledger)
    assert found is not None
    assert (found.number, found.jobs) == (1, {})


def test_the_demand_is_what_was_asked_for_whatever_came_of_it(store: MemoryStore) -> None:
    report(store, "a30-24gb")
    ask(store, 30, accelerator_partition_type="1g.6gb")
    ask(store, 20, min_memory=8)
    ask(store, 10)
    with desk(store).reading() as ledger:
        found = due(ledger)
    assert found is not None
    assert found.arrivals == 60
    names = [ProfileName(1, 6)] * 30 + [ProfileName(2, 12)] * 20 + [ProfileName(4, 24)] * 10
    assert found.demand == Demand.estimate(names, {p.name for p in A30.profiles})


def test_a_plan_is_due_again_after_many_requests_or_for_a_new_kind(store: MemoryStore) -> None:
    report(store, "a30-24gb")
    with desk(store).writing("t") as ledger:
        found = due(ledger)
        assert found is not None
        assert ledger.tx.put_plan(1, found.arrivals, Plan(found.demand, {kind_of(A30): make_kind()}))
    with desk(store).reading() as ledger:
        assert due(ledger) is None
    report(store, "a30-24gb", "rtx-pro-6000")
    with desk(store).reading() as ledger:
        found = due(ledger)
    assert found is not None
    assert len(found.jobs) == 2
    report(store, "a30-24gb")
    ask(store, EVERY, accelerator_partition_type="1g.6gb")
    with desk(store).reading() as ledger:
        found = due(ledger)
    assert found is not None
    assert (found.number, found.arrivals) == (2, EVERY)


def make_kind() -> Any:
    (job,) = jobs([A30], UNKNOWN).values()
    return plan_kind(job, candidates=("priced",))


async def test_the_background_makes_a_plan_that_placement_goes_by(store: MemoryStore) -> None:
    """In a process of its own, as in production; for the small grid of an A30, so that it takes a moment only."""
    report(store, "a30-24gb")
    ours = desk(store)
    with ours.reading() as ledger:
        before = ledger.ranking
    await Foresight(ours, in_thread).step()
    with ours.reading() as ledger:
        record = ledger.tx.plan()
        assert record is not None
        assert ledger.ranking is ranking_of("auto", record)
        assert ledger.ranking is not before
    made = record.plan.kinds[kind_of(A30)]
    assert set(made.accepted) == set(CANDIDATES)
    (job,) = jobs([A30], record.plan.demand).values()
    here = candidate(made.winner, job.grid, job.shapes)
    assert dict(made.worth) == dict(here), "another replica would make the same"
    await Foresight(ours, in_thread).step()
    with ours.reading() as ledger:
        assert ledger.tx.plan() is record, "nothing was due"


async def test_a_policy_that_needs_the_demand_alone_gets_it_at_once(store: MemoryStore) -> None:
    report(store, "a30-24gb")
    ours = desk(store, "share-weighted")
    await Foresight(ours, in_thread).step()
    with ours.reading() as ledger:
        record = ledger.tx.plan()
        assert record is not None
        assert ledger.ranking is POLICIES["share-weighted"].ranking(record.plan.demand)


async def test_a_plan_that_fails_leaves_the_old_one(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    report(store, "a30-24gb")
    monkeypatch.setattr(loops, "MODULE", "mig_spawner.no_such_module")
    with pytest.raises(StoreError, match="the plan so far goes on"):
        await Foresight(desk(store), in_thread).step()
    with store.reading() as tx:
        assert tx.plan() is None


async def test_a_planner_that_is_stopped_leaves_no_process(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    report(store, "a30-24gb")
    made: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def started(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(arguments[0], "-c", "import sys; sys.stdin.read(); input()", **options)
        made.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    task = asyncio.create_task(Foresight(desk(store), in_thread).step())
    while not made:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made[0].returncode is not None


async def test_nodes_and_metrics_say_what_is_lost(rig: Rig) -> None:
    node = await rig.node()
    await rig.acquire("1", "3g.40gb")
    await rig.acquire("2", "4g.40gb")
    await node.turn()
    nodes = NodeService(rig.app.desk).nodes().nodes
    assert (nodes[0].gpus[0].stranded, nodes[0].gpus[0].fragmentation) == (0.0, "")
    async with rig.http() as http:
        text = (await http.get("metrics")).text
    assert f'mig_gpu_stranded_ratio{{gpu_uuid="{node.board.gpu.gpu_uuid}",node="n1"}} 0.0' in text
    assert "mig_plan_age_seconds 0.0" in text


async def test_a_pool_says_what_is_lost_on_its_gpus_together(make_rig: MakeRig) -> None:
    rig = await make_rig(policy="first-fit", pools={"lab": ["n*"]})
    for name in ("n1", "n2"):
        node = await rig.node(name)
        for user, profile in (("1", "3g.40gb"), ("2", "2g.20gb")):
            await rig.acquire(user + name, profile, node=name)
        await node.turn()
    waiting = await rig.acquire("3", "3g.40gb")
    (pool,) = NodeService(rig.app.desk).nodes().pools
    assert (pool.pool, pool.nodes, pool.gpus) == ("lab", 2, 2)
    assert pool.fragmentation == "4 of 16 memory slices of 2 GPUs are free, yet no 3g.40gb fits on any."
    found = await rig.hub.explain(waiting.lease_id)
    assert found.pools == (pool,)
    async with rig.http() as http:
        assert f'mig_pool_stranded_ratio{{pool="lab"}} {pool.stranded}' in (await http.get("metrics")).text
