"""The queue and its reasons, as people see them."""

from __future__ import annotations

from datetime import timedelta

from mig_spawner.domain.lease import EndReason
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.node import Health
from mig_spawner.wire.queue import LeaseChange
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig, until


async def test_the_queue_is_told_in_order_with_its_reasons(rig: Rig) -> None:
    await rig.node()
    await rig.active("held", "4g.40gb")
    large = await rig.acquire("1", "7g.80gb", alternatives=["4g.40gb"])
    small = await rig.acquire("2", "1g.10gb")
    queue = await rig.hub.queue()
    assert (queue.length, [entry.position for entry in queue.entries]) == (2, [1, 2])
    assert [entry.lease_id for entry in queue.entries] == [large.lease_id, small.lease_id]
    assert (queue.entries[0].asked, queue.entries[0].alternatives) == ("7g.80gb", ("4g.40gb",))
    assert queue.entries[0].why == "Nothing is free that would do."
    assert (await rig.hub.change(large.lease_id, LeaseChange(alternatives=()))).position == 1
    why = (await rig.hub.queue()).entries[1].why
    assert why == "Something is free, but to have it would make number 1 begin later."


async def test_the_queue_comes_in_pages(rig: Rig) -> None:
    for number, priority in enumerate([0, 5, -5, 0, 5]):
        await rig.acquire(str(number), priority=priority)
    names: list[str] = []
    cursor = ""
    async with rig.http() as http:
        while True:
            answer = (await http.get(f"/api/v1/queue?limit=2{cursor}")).json()
            names += [entry["holder"]["user_id"] for entry in answer["entries"]]
            if answer["next"] is None:
                break
            cursor = f"&cursor={answer['next']}"
    assert names == ["1", "4", "0", "3", "2"]
    assert [entry.position for entry in (await rig.hub.queue()).entries] == [1, 2, 3, 4, 5]


async def test_why_somebody_waits_when_no_gpu_can_serve(rig: Rig) -> None:
    lease = await rig.acquire("1")
    assert (await rig.hub.explain(lease.lease_id)).why == "No GPU that is known now could serve it."
    await rig.node(health=Health.BAD)
    why = (await rig.hub.explain(lease.lease_id)).why
    assert why == "Nothing may be granted now where it could be served: GPU GPU-n1-0 is bad."


async def test_a_granted_lease_is_explained_by_the_places_it_could_have_had(make_rig: MakeRig) -> None:
    rig = await make_rig(policy="best-fit")
    await rig.node(models=("a100-80gb", "a100-80gb"))
    first = await rig.acquire("1", "3g.40gb")
    lease = await rig.acquire("2", "1g.10gb")
    told = await rig.hub.explain(lease.lease_id)
    assert told.policy == "best-fit"
    assert [candidate.chosen for candidate in told.candidates] == [True, False]
    chosen, other = told.candidates
    assert lease.placement is not None
    assert (chosen.gpu_uuid, chosen.start) == (lease.placement.gpu_uuid, lease.placement.start)
    assert first.placement is not None
    assert chosen.gpu_uuid == first.placement.gpu_uuid, "the fullest GPU"
    assert chosen.rank is not None
    assert other.rank is not None
    assert chosen.rank < other.rank
    assert (chosen.verdict, other.verdict) == ("It is here.", "Free.")
    assert [step.after for step in told.history] == ["queued", "granted"]
    assert "the best place by best-fit" in told.history[-1].why


async def test_who_waits_is_told_when_each_place_would_be_free_and_who_is_ahead(rig: Rig) -> None:
    await rig.node(models=("a100-80gb", "a100-80gb"))
    await rig.active("a", "7g.80gb", duration=600)
    await rig.active("b", "7g.80gb")
    ahead = await rig.acquire("1", "7g.80gb")
    lease = await rig.acquire("2", "4g.40gb")
    told = await rig.hub.explain(lease.lease_id)
    assert [entry.lease_id for entry in told.ahead] == [ahead.lease_id]
    soon, unknown = told.candidates
    assert (soon.free, soon.unknown, unknown.unknown, unknown.starts) == (False, 0, 1, None)
    assert soon.starts is not None
    assert timedelta(0) < soon.starts - rig.clock.now <= timedelta(seconds=600 + 40)
    assert "expected to be gone" in soon.verdict
    assert unknown.verdict == "In the way: 1 lease without an agreed end."


async def _start(rig: Rig, lease: LeaseDocument) -> LeaseDocument:
    """As it is told once somebody has had the time to look ahead."""

    async def told() -> LeaseDocument | None:
        found = await rig.state(lease)
        fresh = found.cannot_tell is None or "just come" not in found.cannot_tell
        return found if fresh else None

    found = await until(told)
    assert found is not None
    return found


async def test_a_start_is_told_from_the_ends_that_were_agreed(rig: Rig) -> None:
    await rig.node()
    await rig.active("a", "7g.80gb", duration=3600)
    waiting = [await rig.acquire(user, "7g.80gb", duration=1000) for user in "12"]
    first, second = [await _start(rig, lease) for lease in waiting]
    for lease, latest in ((first, 3600 + 40), (second, 3600 + 40 + 1000 + 40)):
        assert lease.starts_between is not None
        assert lease.starts_between.earliest <= lease.starts_between.latest
        left = (lease.starts_between.latest - rig.clock.now).total_seconds()
        assert latest - 5 <= left <= latest


async def test_where_nobody_can_tell_that_is_said(rig: Rig) -> None:
    await rig.node()
    await rig.active("a", "7g.80gb")
    lease = await _start(rig, await rig.acquire("1", "7g.80gb"))
    assert lease.starts_between is None
    assert lease.cannot_tell is not None
    assert "It has to wait for 1 lease without an agreed end" in lease.cannot_tell


async def test_a_start_is_told_from_what_has_ended_here(rig: Rig) -> None:
    node = await rig.node()
    for number in range(30):
        lease = await rig.active(f"past-{number}", "7g.80gb")
        rig.clock.move(100 + 10 * number)
        await rig.release(lease, reason=EndReason.STOPPED)
        await node.turn(2)
    await rig.active("a", "7g.80gb")
    waiting = await _start(rig, await rig.acquire("1", "7g.80gb"))
    assert waiting.starts_between is not None
    early = (waiting.starts_between.earliest - rig.clock.now).total_seconds()
    late = (waiting.starts_between.latest - rig.clock.now).total_seconds()
    assert 90 <= early <= 160
    assert 300 <= late <= 410


async def test_an_earmark_is_seen_by_those_who_wait(make_rig: MakeRig) -> None:
    rig = await make_rig(starvation_after=600)
    node = await rig.node()
    await rig.active("a", "4g.40gb")
    starved = await rig.acquire("1", "7g.80gb")
    rig.clock.move(601)
    await node.report()
    await rig.tick()
    other = await rig.acquire("2", "1g.10gb")
    queue = await rig.hub.queue()
    assert [entry.earmarked for entry in queue.entries] == [True, False]
    assert "GPU GPU-n1-0 is being emptied for it" in queue.entries[0].why
    told = await rig.hub.explain(other.lease_id)
    assert told.candidates[0].verdict == "It is being emptied for number 1, who has waited too long."
    assert (await rig.hub.explain(starved.lease_id)).candidates[0].verdict == "It is being emptied for this lease."
