"""When a slice is free again. Unknown is not gone, and not idle."""

from __future__ import annotations

import pytest

from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.wire.lease import LeaseState
from mig_spawner.wire.node import Health
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig


async def test_a_process_on_the_device_holds_the_slice(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    assert lease.placement is not None
    node.board.run(2, lease.placement.start)
    await rig.release(lease)
    await node.report()
    waiting = await rig.state(lease)
    assert (waiting.state, "2 processes" in waiting.detail) == (LeaseState.RELEASING, True)
    node.board.run(None, lease.placement.start)
    await node.report()
    assert "cannot be known" in (await rig.state(lease)).detail
    node.board.run(0, lease.placement.start)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_a_silent_node_frees_nothing(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    await rig.release(lease)
    await rig.tick(3600)
    waiting = await rig.state(lease)
    assert (waiting.state, "silent" in waiting.detail) == (LeaseState.RELEASING, True)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_a_report_from_before_the_release_proves_nothing(rig: Rig) -> None:
    await rig.node()
    lease = await rig.active("a")
    await rig.release(lease)
    await rig.tick()
    waiting = await rig.state(lease)
    assert (waiting.state, "still to report" in waiting.detail) == (LeaseState.RELEASING, True)


async def test_a_sick_gpu_proves_nothing(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    node.board.health = Health.BAD
    node.board.instances.clear()
    await rig.release(lease)
    await node.report()
    assert "cannot tell" in (await rig.state(lease)).detail


async def test_unknown_pods_are_waited_for_without_a_watch(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    await rig.release(lease, PodFate.UNKNOWN)
    await node.report()
    assert "may still appear" in (await rig.state(lease)).detail
    rig.clock.move(41)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_a_report_from_before_a_late_pod_proves_nothing(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    assert lease.placement is not None
    await rig.release(lease, PodFate.UNKNOWN)
    rig.clock.move(20)
    await node.report()
    node.board.run(1, lease.placement.start)
    await rig.tick(21)
    waiting = await rig.state(lease)
    assert (waiting.state, "still to report" in waiting.detail) == (LeaseState.RELEASING, True)
    await node.report()
    assert "a process still runs" in (await rig.state(lease)).detail


async def test_unknown_pods_are_looked_for_with_a_watch(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    lease = await rig.active("a")
    await rig.pods()
    await rig.release(lease, PodFate.UNKNOWN)
    rig.clock.move(100)
    await node.report()
    assert "list the pods again" in (await rig.state(lease)).detail
    # A list that was begun before the time was over could have missed it.
    await rig.pods(age=65)
    assert (await rig.state(lease)).state is LeaseState.RELEASING
    await rig.pods(age=1)
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_a_pod_that_appears_late_holds_the_slice(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    lease = await rig.ready("a")
    await rig.release(lease, PodFate.UNKNOWN)
    await rig.pods(lease.lease_id)
    rig.clock.move(300)
    await node.report()
    await rig.pods(lease.lease_id)
    waiting = await rig.state(lease)
    assert (waiting.state, f"hub/jupyter-{lease.lease_id}" in waiting.detail) == (LeaseState.RELEASING, True)
    await rig.pods()
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_who_says_gone_is_believed_only_if_no_pod_is_seen(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    lease = await rig.ready("a")
    await rig.pods(lease.lease_id)
    await rig.release(lease, PodFate.GONE)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.RELEASING
    await rig.pods()
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_a_pod_that_goes_gives_its_slice_back(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    lease = await rig.ready("a")
    await rig.pods(lease.lease_id)
    rig.clock.move(5)
    await rig.pods()
    ended = await rig.state(lease)
    assert (ended.state, ended.reason) == (LeaseState.RELEASING, EndReason.POD_GONE)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED


async def test_an_old_list_does_not_make_a_new_pod_vanish(make_rig: MakeRig) -> None:
    """Another replica's watch may lag behind the one that saw the pod."""
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.ready("a")
    await rig.pods(lease.lease_id)
    await rig.pods(age=30)
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    await rig.pods(age=30, gone=(lease.lease_id,))
    assert (await rig.state(lease)).reason is EndReason.POD_GONE


async def test_a_confirmed_lease_needs_no_pod_to_be_seen_first(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.active("a")
    rig.clock.move(5)
    await rig.pods()
    assert (await rig.state(lease)).state is LeaseState.ACTIVE


async def test_an_admin_may_vouch_for_what_cannot_be_known(rig: Rig) -> None:
    """A node that never comes back must not keep its holder from working elsewhere."""
    node = await rig.node()
    lease = await rig.active("a")
    assert lease.placement is not None
    node.board.run(1, lease.placement.start)
    await rig.release(lease, PodFate.UNKNOWN)
    await rig.tick(3600)
    forced = await rig.release(lease, PodFate.GONE, EndReason.FORCED)
    assert (forced.state, forced.reason) == (LeaseState.CLOSED, EndReason.FORCED)
    # The holder may ask again; the slices stay taken until the node shows them empty.
    await node.report()
    full = await rig.acquire("a", "7g.80gb")
    assert full.state is LeaseState.QUEUED
    node.board.run(0, lease.placement.start)
    await node.turn(2)
    assert (await rig.state(full)).state is LeaseState.READY


async def test_a_pod_of_a_closed_lease_keeps_its_place_taken(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node(dynamic=False, report=False)
    node.board.add("7g.80gb", 0)
    await node.report()
    lease = await rig.active("a", "7g.80gb")
    await rig.pods(lease.lease_id)
    await rig.release(lease, PodFate.UNKNOWN)
    await rig.release(lease, PodFate.GONE, EndReason.FORCED)
    assert (await rig.state(lease)).state is LeaseState.CLOSED
    waiting = await rig.acquire("b", "7g.80gb")
    assert waiting.state is LeaseState.QUEUED
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.QUEUED
    await rig.pods()
    assert (await rig.state(waiting)).state is LeaseState.READY


async def test_nothing_is_made_for_a_lease_that_ends_before_its_device(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.acquire("a")
    released = await rig.release(lease, PodFate.NONE)
    assert released.state is LeaseState.RELEASING
    desired = await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED
    assert (desired.instances, len(desired.destroy)) == ((), 1)
    await node.turn()
    assert node.board.instances == {}
    assert (await node.report()).destroy == ()


@pytest.mark.parametrize("told", [EndReason.STOPPED, EndReason.START_FAILED])
async def test_who_ends_a_lease_says_why_even_if_its_pod_was_seen_to_go_before(
    make_rig: MakeRig, told: EndReason
) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    lease = await rig.ready("a")
    await rig.pods(lease.lease_id)
    rig.clock.move(5)
    await rig.pods()
    assert (await rig.state(lease)).reason is EndReason.POD_GONE
    assert (await rig.release(lease, reason=told)).reason is told
    row = rig.audit(lease)[-1]
    assert (row.before, row.after, told in row.why) == ("releasing", "releasing", True)
    await rig.release(lease, reason=told)
    assert rig.audit(lease)[-1] == row
    await node.report()
    closed = await rig.state(lease)
    assert (closed.state, closed.reason) == (LeaseState.CLOSED, told)


async def test_another_reason_than_a_pod_that_went_stays(rig: Rig) -> None:
    await rig.node()
    lease = await rig.active("a")
    await rig.release(lease, PodFate.UNKNOWN, EndReason.EXPIRED)
    assert (await rig.release(lease, PodFate.GONE, EndReason.STOPPED)).reason is EndReason.EXPIRED
