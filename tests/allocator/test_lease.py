"""Acquire, wait, use, release: the life of a lease as its holder sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mig_spawner.allocator.service import LeaseService, Seen
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import LeaseRelease, LeaseState
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig, until


async def test_a_slice_is_granted_made_taken_and_given_back(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.acquire("1", "3g.40gb")
    assert lease.state is LeaseState.GRANTED
    assert lease.placement is not None
    assert (lease.placement.profile, lease.placement.size, lease.placement.node) == ("3g.40gb", 4, "n1")
    await node.turn()
    lease = await rig.state(lease)
    assert (lease.state, lease.device_uuid) == (LeaseState.READY, f"MIG-GPU-n1-0-9-{lease.placement.start}")  # type: ignore[union-attr]
    assert (await rig.hub.renew(lease.lease_id)).state is LeaseState.ACTIVE
    assert (await rig.release(lease)).state is LeaseState.RELEASING
    rig.clock.move(10)
    await node.turn()
    lease = await rig.state(lease)
    assert (lease.state, lease.reason) == (LeaseState.CLOSED, EndReason.STOPPED)
    assert lease.gpu_seconds == pytest.approx(0.5 * 10, abs=0.1)
    assert node.board.instances == {}
    offer = (await rig.hub.availability()).offer("3g.40gb")
    assert offer is not None
    assert (offer.free, offer.total) == (2, 2)
    moves = [(row.before, row.after) for row in rig.audit(lease)]
    states = ["queued", "granted", "ready", "active", "releasing", "closed"]
    assert moves == list(zip([None, *states], states, strict=False))


async def test_asking_again_gives_the_same_lease(rig: Rig) -> None:
    await rig.node()
    first = await rig.acquire("1")
    again = await asyncio.gather(*(rig.acquire("1") for _ in range(5)))
    assert {lease.lease_id for lease in again} == {first.lease_id}
    other_server = await rig.acquire("1", server="gpu")
    assert other_server.lease_id != first.lease_id
    assert len((await rig.hub.leases()).leases) == 2
    assert [lease.lease_id for lease in (await rig.hub.leases(user_id="1", server_name="gpu")).leases] == [
        other_server.lease_id
    ]


@pytest.mark.parametrize("state", ["queued", "granted", "ready", "active"])
async def test_a_holder_cannot_have_two_things(rig: Rig, state: str) -> None:
    node = await rig.node()
    if state == "queued":
        await rig.acquire("other", "7g.80gb")
    lease = await rig.acquire("1", "2g.20gb")
    if state in ("ready", "active"):
        await node.turn()
    if state == "active":
        await rig.hub.renew(lease.lease_id)
    assert (await rig.state(lease)).state == state
    with pytest.raises(AllocatorRefused, match=r"2g\.20gb") as caught:
        await rig.acquire("1", "1g.10gb")
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    assert (await rig.state(lease)).state == state


async def test_a_new_slice_waits_for_the_release_of_the_old_one(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("1")
    await rig.release(lease)
    with pytest.raises(AllocatorRefused, match="still being released") as caught:
        await rig.acquire("1")
    assert caught.value.code == "conflict"
    await node.turn()
    assert (await rig.acquire("1")).lease_id != lease.lease_id


async def test_the_queue_has_an_order_and_positions(rig: Rig) -> None:
    node = await rig.node()
    first = await rig.active("first", "7g.80gb")
    waiting = [await rig.acquire(user, "7g.80gb") for user in "abc"]
    assert [(lease.state, lease.position, lease.queue_length) for lease in waiting] == [
        ("queued", 1, 1),
        ("queued", 2, 2),
        ("queued", 3, 3),
    ]
    assert "number 2 of 3" in (await rig.state(waiting[1])).detail
    await rig.release(waiting[1], reason=EndReason.CANCELLED)
    assert [(await rig.state(waiting[i])).position for i in (0, 2)] == [1, 2]
    await rig.release(first)
    await node.turn(3)
    assert [(await rig.state(lease)).state for lease in waiting] == ["ready", "closed", "queued"]
    assert (await rig.hub.availability()).queue_length == 1


async def test_nobody_is_passed_by_who_could_take_what_he_waits_for(rig: Rig) -> None:
    await rig.node()
    await rig.active("a", "4g.40gb")
    large = await rig.acquire("b", "7g.80gb")
    small = await rig.acquire("c", "1g.10gb")
    assert (large.state, small.state, small.position) == ("queued", "queued", 2)
    offer = (await rig.hub.availability()).offer("1g.10gb")
    assert offer is not None
    assert (offer.free, offer.reason) == (0, "others are waiting for it")
    await rig.release(large)
    assert (await rig.state(small)).state == "granted"


async def test_who_cannot_compete_may_pass(rig: Rig) -> None:
    static = await rig.node("n2", dynamic=False, report=False)
    static.board.add("1g.10gb", 0)
    await static.report()
    await rig.node("n1", ("h100-80gb",), mig_enabled=None)
    assert (await rig.acquire("a", None)).state == "ready"
    assert (await rig.acquire("b", None)).state == "queued"
    assert (await rig.acquire("c", "1g.10gb")).state == "ready"


async def test_fixed_slices_of_another_profile_are_not_set_aside(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    node.board.add("3g.40gb", 4)
    node.board.add("1g.10gb", 0)
    await node.report()
    assert (await rig.acquire("a", "3g.40gb")).state == "ready"
    assert (await rig.acquire("b", "3g.40gb")).state == "queued"
    assert (await rig.acquire("c", "1g.10gb")).state == "ready"


async def test_now_or_never(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("a", "7g.80gb")
    lease = await rig.acquire("b", "1g.10gb", wait_budget=0)
    assert (lease.state, lease.reason) == (LeaseState.CLOSED, EndReason.WAIT_OVER)
    assert "free" in lease.detail
    assert (await rig.acquire("b", "1g.10gb")).state is LeaseState.QUEUED


async def test_a_long_poll_answers_when_the_lease_is_ready(rig: Rig) -> None:
    node = await rig.node()
    asked = asyncio.create_task(rig.hub.acquire(rig.request("1"), wait_s=30))
    desired = await node.client.desired("n1", known=(await node.report()).generation, wait_s=30)
    if not desired.instances:
        desired = await node.client.desired("n1", known=desired.generation, wait_s=30)
    assert not asked.done()
    node.obey(desired)
    await node.report()
    async with asyncio.timeout(5):
        assert (await asked).state is LeaseState.READY


async def test_a_long_poll_answers_when_the_position_changes(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("a", "7g.80gb")
    before = await rig.acquire("b")
    lease = await rig.acquire("c")
    assert lease.position == 2
    polled = asyncio.create_task(rig.hub.lease(lease.lease_id, wait_s=30, known=lease))
    await rig.release(before)
    async with asyncio.timeout(5):
        assert (await polled).position == 1


async def test_a_long_poll_answers_after_its_time(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("a", "7g.80gb")
    lease = await rig.acquire("b")
    assert (await rig.hub.lease(lease.lease_id, wait_s=0.05, known=lease)).position == 1


async def test_long_polls_are_woken_by_another_replica(make_rig: MakeRig) -> None:
    one, two = await make_rig(), await make_rig()
    await one.node()
    lease = await one.acquire("a")
    polled = asyncio.create_task(one.hub.lease(lease.lease_id, wait_s=30, known=lease))
    await two.release(lease)
    async with asyncio.timeout(5):
        assert (await polled).state is LeaseState.RELEASING


async def test_minimum_memory_takes_the_smallest_that_suffices(rig: Rig) -> None:
    await rig.node()
    lease = await rig.acquire("1", None, min_memory=12)
    assert lease.placement is not None
    assert lease.placement.profile in ("1g.20gb", "2g.20gb")
    assert lease.asked == "at least 12 GB"


async def test_minimum_memory_falls_back_to_a_larger_slice(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    node.board.add("2g.20gb", 0)
    node.board.add("3g.40gb", 4)
    await node.report()
    first, second = await rig.acquire("1", None, min_memory=12), await rig.acquire("2", None, min_memory=12)
    assert [lease.placement.profile for lease in (first, second) if lease.placement] == ["2g.20gb", "3g.40gb"]


@pytest.mark.parametrize(
    ("profile", "more"),
    [("1g.5gb", {}), ("1g.24gb-me", {}), (None, {"min_memory": 500})],
    ids=["another GPU's profile", "a media profile", "too much memory"],
)
async def test_the_impossible_is_refused_at_once(rig: Rig, profile: str | None, more: dict[str, Any]) -> None:
    await rig.node()
    with pytest.raises(AllocatorRefused, match=r"Profiles on offer: 1g\.10gb") as caught:
        await rig.acquire("1", profile, **more)
    assert (caught.value.status, caught.value.code) == (422, "impossible")
    assert (await rig.hub.leases()).leases == ()
    assert (await rig.acquire("1")).state is LeaseState.GRANTED


async def test_a_node_that_is_avoided_serves_nobody_who_avoids_it(rig: Rig) -> None:
    await rig.node("n1")
    second = await rig.node("n2")
    away = await rig.acquire("1", "7g.80gb", avoid_nodes=("n1",))
    assert away.placement is not None
    assert away.placement.node == "n2"
    # The other node is full: whoever avoids the first one waits for it, and others pass.
    waiting = await rig.acquire("2", avoid_nodes=("n1",), wait_budget=1000)
    assert waiting.state is LeaseState.QUEUED
    passing = await rig.acquire("3")
    assert passing.placement is not None
    assert passing.placement.node == "n1"
    await second.turn()
    await rig.release(away)
    await second.turn(2)
    served = await rig.state(waiting)
    assert served.placement is not None
    assert served.placement.node == "n2"


async def test_where_all_nodes_that_could_serve_are_avoided_it_is_impossible(rig: Rig) -> None:
    await rig.node("n1")
    await rig.node("n2", models=("a30",))
    with pytest.raises(AllocatorRefused) as caught:
        await rig.acquire("1", "1g.10gb", avoid_nodes=("n1",))
    assert (caught.value.status, caught.value.code) == (422, "impossible")
    assert (await rig.acquire("1", "1g.6gb", avoid_nodes=("n1",))).placement is not None


async def test_an_avoided_node_is_tried_after_a_while_if_no_other_is_left(rig: Rig) -> None:
    first, second = await rig.node("n1"), await rig.node("n2")
    await rig.acquire("1", "7g.80gb", avoid_nodes=("n1",))
    waiting = await rig.acquire("2", avoid_nodes=("n1",), wait_budget=1000)
    # One that is cut no more never serves it.
    second.board.dynamic = False
    await second.report()
    await rig.tick()
    assert (await rig.state(waiting)).state is LeaseState.QUEUED
    rig.clock.move(61)
    await first.report()
    await rig.tick()
    found = await rig.state(waiting)
    assert found.placement is not None
    assert found.placement.node == "n1"


async def test_an_avoided_node_is_tried_although_another_has_the_profile_but_no_room_for_it(rig: Rig) -> None:
    first, second = await rig.node("n1"), await rig.node("n2", report=False)
    for start in range(7):
        second.board.add("1g.10gb", start)  # by its admin: they stay
    await second.report()
    await rig.acquire("1", "7g.80gb")
    waiting = await rig.acquire("2", "3g.40gb", avoid_nodes=("n1",), wait_budget=1000)
    await rig.tick()
    assert (await rig.state(waiting)).state is LeaseState.QUEUED
    [lease] = [x for x in (await rig.hub.leases()).leases if x.holder.user_id == "1"]
    await first.turn()
    await rig.release(lease)
    await first.turn(2)
    assert (await rig.state(waiting)).state is LeaseState.QUEUED, "not in a loop"
    rig.clock.move(61)
    await first.report()
    await second.report()
    await rig.tick()
    found = await rig.state(waiting)
    assert found.placement is not None
    assert found.placement.node == "n1"


async def test_an_avoided_node_is_not_tried_while_another_will_be_free(rig: Rig) -> None:
    first, second = await rig.node("n1"), await rig.node("n2")
    await rig.acquire("1", "7g.80gb", avoid_nodes=("n1",))
    waiting = await rig.acquire("2", avoid_nodes=("n1",), wait_budget=1000)
    await second.turn()
    rig.clock.move(61)
    await first.report()
    await second.turn()
    await rig.tick()
    assert (await rig.state(waiting)).state is LeaseState.QUEUED


async def test_a_whole_gpu_of_fixed_slices_is_impossible(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    node.board.add("1g.10gb", 0)
    await node.report()
    with pytest.raises(AllocatorRefused, match="Choose a slice"):
        await rig.acquire("1", None)


async def test_who_waits_for_a_slice_is_not_read_again_whenever_the_line_moves(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node(dynamic=False, report=False)
    node.board.add("7g.80gb", 0)
    await node.report()
    held, ahead, last = [await rig.acquire(user, "7g.80gb") for user in ("held", "ahead", "last")]
    read, service = list[str](), LeaseService.lease

    def counted(leases: LeaseService, lease_id: str) -> Seen:
        read.append(lease_id)
        return service(leases, lease_id)

    monkeypatch.setattr(LeaseService, "lease", counted)
    waiting = asyncio.create_task(rig.hub.lease(last.lease_id, wait_s=30))
    moving = asyncio.create_task(rig.hub.lease(last.lease_id, wait_s=30, known=last))
    await until(lambda: _waiting(rig, 2))
    await rig.release(ahead, reason=EndReason.CANCELLED)
    assert (await moving).position == 1
    await rig.release(held)
    await node.report()
    assert (await waiting).state is LeaseState.READY
    assert read.count(last.lease_id) == 4, "two when they began, one for the place, one for the slice"


async def _waiting(rig: Rig, number: int) -> bool:
    return rig.app.changes._waiting == number


async def test_before_the_first_report_everybody_waits(rig: Rig) -> None:
    lease = await rig.acquire("1")
    assert lease.state is LeaseState.QUEUED
    node = await rig.node()
    await node.turn()
    assert (await rig.state(lease)).state is LeaseState.READY


async def test_the_queue_is_bounded(make_rig: MakeRig) -> None:
    rig = await make_rig(queue_limit=1)
    await rig.acquire("1")
    with pytest.raises(AllocatorRefused, match="Try again later") as caught:
        await rig.acquire("2")
    assert (caught.value.status, caught.value.code) == (429, "queue-full")


async def test_releasing_by_holder_needs_no_id(rig: Rig) -> None:
    await rig.node()
    lease = await rig.acquire("1", server="s")
    released = await rig.hub.release_holder("1", "s", LeaseRelease(pod=PodFate.NONE))
    assert [(r.lease_id, r.state) for r in released.leases] == [(lease.lease_id, "releasing")]
    assert (await rig.hub.release_holder("1", "other", LeaseRelease())).leases == ()


async def test_releasing_twice_does_no_harm(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("1")
    first, second = await rig.release(lease, PodFate.UNKNOWN), await rig.release(lease, PodFate.UNKNOWN)
    assert first == second
    await rig.release(lease, PodFate.GONE)
    await node.turn()
    closed = await rig.state(lease)
    assert closed.state is LeaseState.CLOSED
    assert await rig.release(lease) == closed


async def test_what_is_not_ready_cannot_be_taken(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.acquire("1")
    with pytest.raises(AllocatorRefused, match="not ready") as caught:
        await rig.hub.renew(lease.lease_id)
    assert caught.value.code == "conflict"
    await rig.release(lease)
    with pytest.raises(AllocatorRefused, match="has ended"):
        await rig.hub.renew(lease.lease_id)
    await node.turn()
    with pytest.raises(AllocatorRefused, match="has ended"):
        await rig.hub.renew(lease.lease_id)


async def test_an_unknown_lease_is_not_found(rig: Rig) -> None:
    for call in (rig.hub.lease("nope"), rig.hub.renew("nope"), rig.hub.release("nope", LeaseRelease())):
        with pytest.raises(AllocatorRefused) as caught:
            await call
        assert (caught.value.status, caught.value.code) == (404, "not-found")
