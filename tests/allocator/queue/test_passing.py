"""Who may pass whom, and what ends a wait that is too long; over HTTP, with a clock that is moved."""

from __future__ import annotations

import sqlite3

from sqlalchemy.dialects import sqlite

from mig_spawner.allocator.store import statement
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig


def _gpu(lease: LeaseDocument) -> str | None:
    return None if lease.placement is None else lease.placement.gpu_uuid


async def test_who_is_gone_in_time_may_pass(rig: Rig) -> None:
    node = await rig.node()
    held = await rig.active("a", "4g.40gb", duration=3600)
    large = await rig.acquire("large", "7g.80gb")
    # Both the first lease and who passes are in the way for settle_after (40 s) beyond their end.
    assert (await rig.acquire("late", "1g.10gb", duration=3660)).state is LeaseState.QUEUED
    assert (await rig.acquire("short", "1g.10gb", duration=1800)).state is LeaseState.GRANTED
    await rig.release(held)
    await node.turn(2)
    assert (await rig.state(large)).state is LeaseState.QUEUED


async def test_a_small_one_goes_where_a_large_one_is_not_expected(rig: Rig) -> None:
    await rig.node(models=("a100-80gb", "a100-80gb"))
    one, other = await rig.acquire("a", "4g.40gb"), await rig.acquire("b", "7g.80gb")
    assert _gpu(one) != _gpu(other)
    await rig.release(other)
    more = await rig.acquire("c", "3g.40gb")
    await rig.nodes["n1"].turn(2)
    # GPU of `a`: full. The other one is empty: a second large one takes it, a third waits for it or for the first.
    assert _gpu(more) == _gpu(one)
    second = await rig.acquire("d", "4g.40gb")
    third = await rig.acquire("e", "7g.80gb")
    assert (second.state, third.state) == (LeaseState.GRANTED, LeaseState.QUEUED)
    small = await rig.acquire("f", "1g.10gb")
    assert (small.state, small.position) == (LeaseState.QUEUED, 2), "only one lease has to end there for the large one"


async def test_who_waits_too_long_has_a_gpu_earmarked(make_rig: MakeRig) -> None:
    rig = await make_rig(starvation_after=600)
    node = await rig.node(models=("a100-80gb", "a100-80gb"))
    first = await rig.active("a", "1g.10gb")
    await rig.active("b", "7g.80gb")
    large = await rig.acquire("large", "7g.80gb")
    rig.clock.move(601)
    await node.report()
    await rig.tick()
    why = [row.why for row in rig.audit(large)]
    assert f"{_gpu(first)} is kept for it, nothing new is placed there" in why[-1]
    # Neither a greater priority nor a short stay is placed there, and what is free there is nobody's.
    assert (await rig.acquire("high", "1g.10gb", priority=50)).state is LeaseState.QUEUED
    assert (await rig.acquire("short", "1g.10gb", duration=1)).state is LeaseState.QUEUED
    offer = (await rig.hub.availability()).offer("1g.10gb")
    assert offer is not None
    assert (offer.free, offer.reason) == (0, "others are waiting for it")
    await rig.release(first)
    await node.turn(3)
    served = await rig.state(large)
    assert (served.state, _gpu(served)) == (LeaseState.READY, _gpu(first))
    await rig.tick()
    with rig.app.desk.store.reading() as tx:
        assert tx.earmarks() == {}


async def test_one_gpu_at_a_time_is_earmarked_for_those_who_compete(make_rig: MakeRig) -> None:
    rig = await make_rig(starvation_after=600)
    large = await rig.node("n1", models=("a100-80gb", "a100-80gb"))
    small = await rig.node("n2", models=("a30",))
    for number, (profile, node) in enumerate([("7g.80gb", "n1"), ("7g.80gb", "n1"), ("4g.24gb", "n2")]):
        await rig.active(f"held-{number}", profile, node)
    waiting = [await rig.acquire(f"w{n}", profile) for n, profile in enumerate(["7g.80gb", "7g.80gb", "4g.24gb"])]
    rig.clock.move(601)
    await large.turn()
    await small.turn()
    await rig.tick()
    with rig.app.desk.store.reading() as tx:
        assert set(tx.earmarks().values()) == {waiting[0].lease_id, waiting[2].lease_id}


async def test_a_gpu_that_is_cordoned_is_given_up_for_another(make_rig: MakeRig) -> None:
    rig = await make_rig(starvation_after=600)
    nodes = [await rig.node(name) for name in ("n1", "n2")]
    held = [await rig.active(f"a{n}", "7g.80gb", node.name) for n, node in enumerate(nodes)]
    waiting = await rig.acquire("w", "7g.80gb")
    rig.clock.move(601)
    for node in nodes:
        await node.report()
    await rig.tick()
    with rig.app.desk.store.reading() as tx:
        kept = next(iter(tx.earmarks()))
    first = next(lease for lease in held if _gpu(lease) == kept)
    async with rig.http() as http:
        assert first.placement is not None
        await http.post(f"/api/v1/nodes/{first.placement.node}/cordon")
    await rig.tick()
    with rig.app.desk.store.reading() as tx:
        assert list(tx.earmarks()) == [_gpu(lease) for lease in held if _gpu(lease) != kept]
    assert f"{kept} cannot serve it any more" in [row.why for row in rig.audit(waiting)]


async def test_nobody_starves_where_that_is_switched_off(make_rig: MakeRig) -> None:
    rig = await make_rig(starvation_after=0)
    node = await rig.node()
    await rig.active("a", "7g.80gb")
    await rig.acquire("w", "7g.80gb")
    rig.clock.move(100_000)
    await node.report()
    await rig.tick()
    with rig.app.desk.store.reading() as tx:
        assert tx.earmarks() == {}


async def test_the_line_is_read_from_an_index(rig: Rig) -> None:
    """So that a decision reads as much of the queue as it needs, and sorts nothing."""
    text = str(statement.QUEUE.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
    connection = sqlite3.connect(rig.database)
    try:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    finally:
        connection.close()
    assert plan == ["SEARCH lease USING INDEX ix_lease_line (state=?)"]
