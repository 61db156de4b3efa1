"""The verbs that tell of the queue, against a running allocator."""

from __future__ import annotations

from mig_spawner.wire.queue import ExplainDocument, QueueDocument
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig
from tests.cli.conftest import Type


async def test_who_waits_and_why(rig: Rig, typed: Type) -> None:
    await rig.node()
    held = await rig.active("1", "7g.80gb")
    waits = await rig.acquire("2", "7g.80gb")
    shown = await typed("queue")
    assert (shown.code, shown.err) == (0, "")
    assert "1. name-2/" in " ".join(shown.out.split())
    assert "1 waiting." in shown.out
    assert QueueDocument.model_validate((await typed("queue", "--json")).json).length == 1
    for lease in (held, waits):
        told = await typed("explain", lease.lease_id)
        assert (told.code, lease.lease_id in told.out) == (0, True)
        document = ExplainDocument.model_validate((await typed("explain", lease.lease_id, "--json")).json)
        assert " ".join(document.why.split()) in " ".join(told.out.split())
    assert (await typed("explain", "nothing")).code == 3


async def test_explain_says_how_broken_up_each_pool_is(make_rig: MakeRig, typed: Type) -> None:
    """A pool on which nothing is lost is not spoken of: there is nothing to explain by it."""
    rig = await make_rig(policy="first-fit", pools={"lab": ["n1", "n2"], "spare": ["n3"]})
    for name in ("n1", "n2"):
        node = await rig.node(name)
        for user, profile in (("1", "3g.40gb"), ("2", "2g.20gb")):
            await rig.acquire(user + name, profile, node=name)
        await node.turn()
    await rig.node("n3")
    await rig.acquire("all", "7g.80gb", node="n3")
    waits = await rig.acquire("3", "3g.40gb")
    told = await typed("explain", waits.lease_id, MIG_ALLOCATOR_URL=rig.app.url)
    assert (told.code, told.err) == (0, "")
    lab, spare = (await rig.hub.explain(waits.lease_id)).pools
    lines = [line for line in told.out.splitlines() if line.startswith("Pool ")]
    lost = "4 of 16 memory slices of 2 GPUs are free, yet no 3g.40gb fits on any."
    assert lines == [f"Pool lab: {lost} {lab.stranded:.0%} of its GPUs is free and of no use for the next request."]
    assert 0 < lab.stranded <= 0.25
    assert (spare.pool, spare.fragmentation) == ("spare", "")


async def test_a_lease_for_one_node_is_explained_by_that_node(rig: Rig, typed: Type) -> None:
    for name in ("n1", "n2"):
        await rig.node(name)
    await rig.acquire("1", "7g.80gb", node="n1")
    waits = await rig.acquire("2", "3g.40gb", node="n1")
    (pool,) = (await rig.hub.explain(waits.lease_id)).pools
    assert (pool.nodes, pool.gpus) == (1, 1)
    told = await typed("explain", waits.lease_id)
    free = await rig.acquire("3", "1g.10gb")
    scores = [
        f"{c.rank[0]},{c.rank[1]}" for c in (await rig.hub.explain(free.lease_id)).candidates if c.rank is not None
    ]
    assert scores
    scored = (await typed("explain", free.lease_id)).out
    assert all(score in scored for score in scores)
    (elsewhere,) = [line for line in told.out.splitlines() if "GPU-n2-0" in line]
    assert "It is wanted on node n1 alone." in elsewhere
