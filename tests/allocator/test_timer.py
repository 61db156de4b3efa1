"""What time alone changes, with a clock that is moved."""

from __future__ import annotations

import pytest

from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.wire.lease import LeaseState
from mig_spawner.wire.node import Health
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig


async def test_who_will_not_wait_longer_is_told_so(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("a", "7g.80gb")
    patient, impatient = await rig.acquire("b"), await rig.acquire("c", wait_budget=30)
    await rig.tick(29)
    assert (await rig.state(impatient)).state is LeaseState.QUEUED
    await rig.tick(2)
    ended = await rig.state(impatient)
    assert (ended.state, ended.reason, ended.gpu_seconds) == (LeaseState.CLOSED, EndReason.WAIT_OVER, 0)
    assert (await rig.state(patient)).state is LeaseState.QUEUED


async def test_a_device_that_is_not_made_is_tried_elsewhere(rig: Rig) -> None:
    await rig.node("n1")
    await rig.node("n2")
    lease = await rig.acquire("a", "7g.80gb")
    first = lease.placement
    assert first is not None
    await rig.tick(119)
    assert (await rig.state(lease)).placement == first
    rig.clock.move(2)
    for node in rig.nodes.values():
        await node.report()
    await rig.tick()
    moved = await rig.state(lease)
    assert moved.placement is not None
    assert (moved.state, moved.placement.node) == (LeaseState.GRANTED, "n2")
    assert moved.queued_at == lease.queued_at
    await rig.nodes["n2"].turn()
    assert (await rig.state(lease)).state is LeaseState.READY


async def test_a_ready_slice_that_nobody_takes_is_released(rig: Rig) -> None:
    await rig.node()
    lease = await rig.ready("a")
    await rig.tick(599)
    assert (await rig.state(lease)).state is LeaseState.READY
    await rig.tick(2)
    ended = await rig.state(lease)
    assert (ended.state, ended.reason) == (LeaseState.RELEASING, EndReason.NOT_TAKEN)


async def test_who_cannot_see_pods_does_not_say_that_nobody_came(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.ready("a")
    await rig.tick(601)
    assert (await rig.state(lease)).state is LeaseState.READY
    await rig.pods()
    await rig.tick()
    assert (await rig.state(lease)).reason is EndReason.NOT_TAKEN


@pytest.mark.parametrize("taken", [False, True])
async def test_a_lease_expires(rig: Rig, taken: bool) -> None:
    await rig.node()
    lease = await (rig.active if taken else rig.ready)("a", duration=60)
    assert lease.placement is not None
    assert lease.placement.expires_at is not None
    await rig.tick(58)
    assert (await rig.state(lease)).reason is None
    await rig.tick(3)
    ended = await rig.state(lease)
    assert (ended.state, ended.reason) == (LeaseState.RELEASING, EndReason.EXPIRED)


async def test_a_holder_without_heartbeat_pod_and_process_is_lost(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    rig.clock.move(299)
    await rig.hub.renew(lease.lease_id)
    rig.clock.move(299)
    await node.report()
    await rig.tick()
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    rig.clock.move(2)
    await node.report()
    await rig.tick()
    assert (await rig.state(lease)).reason is EndReason.HOLDER_LOST


@pytest.mark.parametrize("sign", ["process", "unknown", "silent", "sick"])
async def test_while_something_may_live_the_lease_stays(rig: Rig, sign: str) -> None:
    """The hub may be down for hours: no heartbeat comes, and running sessions keep their slices."""
    node = await rig.node()
    lease = await rig.active("a")
    assert lease.placement is not None
    if sign == "process":
        node.board.run(1, lease.placement.start)
    elif sign == "unknown":
        node.board.run(None, lease.placement.start)
    elif sign == "sick":
        node.board.health = Health.BAD
    rig.clock.move(3 * 3600)
    if sign != "silent":
        await node.report()
    await rig.tick()
    assert (await rig.state(lease)).state is LeaseState.ACTIVE


async def test_a_pod_alone_keeps_the_lease(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    lease = await rig.ready("a")
    await rig.pods(lease.lease_id)
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    rig.clock.move(3 * 3600)
    await node.report()
    await rig.tick()
    assert (await rig.state(lease)).state is LeaseState.ACTIVE


async def test_gpus_that_failed_are_tried_again_after_a_while(rig: Rig) -> None:
    node = await rig.node()
    node.board.fails = "driver says no"
    lease = await rig.acquire("a")
    await node.turn()
    waiting = await rig.state(lease)
    assert (waiting.state, waiting.position) == (LeaseState.QUEUED, 1)
    assert "could not be made on 1 GPU" in waiting.detail
    assert rig.audit(lease)[-1].why == "create failed: driver says no"
    node.board.fails = ""
    await node.turn(2)
    await rig.tick(50)
    assert (await rig.state(lease)).state is LeaseState.QUEUED
    rig.clock.move(11)
    await node.report()
    await rig.tick()
    await node.turn()
    assert (await rig.state(lease)).state is LeaseState.READY


async def test_a_tick_does_nothing_twice(rig: Rig) -> None:
    await rig.node()
    lease = await rig.ready("a")
    await rig.tick(601)
    before = rig.audit(lease)
    for _ in range(3):
        await rig.tick()
    assert rig.audit(lease) == before


async def test_a_release_of_a_lease_with_unknown_pod_settles(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    await rig.release(lease, PodFate.UNKNOWN)
    for _ in range(4):
        rig.clock.move(9)
        await node.report()
        assert (await rig.state(lease)).state is LeaseState.RELEASING
    rig.clock.move(5)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED
