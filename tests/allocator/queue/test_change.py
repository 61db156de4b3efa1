"""Changing what one waits for; leaving, and coming back for it."""

from __future__ import annotations

from typing import Any

import pytest

from mig_spawner.domain.lease import EndReason
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import ChoiceDocument, LeaseDocument, LeaseState
from mig_spawner.wire.queue import LeaseChange
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Rig, until


async def _waiting(rig: Rig, **more: Any) -> LeaseDocument:
    await rig.node()
    await rig.active("held", "4g.40gb")
    lease = await rig.acquire("1", "7g.80gb", **more)
    assert lease.state is LeaseState.QUEUED
    return lease


async def test_a_change_keeps_the_place_in_line(rig: Rig) -> None:
    first = await _waiting(rig)
    second = await rig.acquire("2", "7g.80gb")
    changed = await rig.hub.change(first.lease_id, LeaseChange(accelerator_partition_type="4g.40gb"))
    assert (changed.asked, changed.position, changed.queued_at) == ("4g.40gb", 1, first.queued_at)
    assert (await rig.state(second)).position == 2
    assert [row.why for row in rig.audit(first)] == [
        "name-1 asks for 7g.80gb",
        "changed: it asks for 4g.40gb, priority 0",
    ]


async def test_who_is_content_with_less_is_served_at_once(rig: Rig) -> None:
    lease = await _waiting(rig)
    changed = await rig.hub.change(
        lease.lease_id, LeaseChange(alternatives=(ChoiceDocument(accelerator_partition_type="3g.40gb"),))
    )
    assert (changed.state, changed.asked, changed.granted_choice) == (LeaseState.GRANTED, "7g.80gb", 1)


async def test_what_is_left_out_stays(rig: Rig) -> None:
    lease = await _waiting(rig, wait_budget=1000, duration=60, alternatives=["4g.40gb"])
    changed = await rig.hub.change(lease.lease_id, LeaseChange(priority=3))
    assert (changed.asked, changed.alternatives, changed.priority) == ("7g.80gb", ("4g.40gb",), 3)
    await rig.hub.change(lease.lease_id, LeaseChange(duration=None))
    with rig.app.desk.store.reading() as tx:
        stored = tx.lease(lease.lease_id)
        assert stored is not None
        assert stored.duration_s is None
        assert stored.wait_until is not None
    assert (await rig.hub.change(lease.lease_id, LeaseChange(alternatives=()))).alternatives == ()


async def test_the_wait_may_be_made_longer_or_endless(rig: Rig) -> None:
    lease = await _waiting(rig, wait_budget=10)
    rig.clock.move(9)
    await rig.hub.change(lease.lease_id, LeaseChange(wait_budget=10))
    await rig.tick(9)
    assert (await rig.state(lease)).state is LeaseState.QUEUED
    await rig.hub.change(lease.lease_id, LeaseChange(wait_budget=None))
    await rig.tick(10_000)
    assert (await rig.state(lease)).state is LeaseState.QUEUED
    await rig.hub.change(lease.lease_id, LeaseChange(wait_budget=0))
    await rig.tick()
    assert (await rig.state(lease)).reason is EndReason.WAIT_OVER


async def test_a_change_that_changes_nothing_leaves_no_trace(rig: Rig) -> None:
    lease = await _waiting(rig)
    assert (await rig.hub.change(lease.lease_id, LeaseChange())).position == 1
    await rig.hub.change(lease.lease_id, LeaseChange(accelerator_partition_type="7g.80gb"))
    assert len(rig.audit(lease)) == 1


@pytest.mark.parametrize(
    ("state", "change", "code"),
    [
        ("queued", LeaseChange(accelerator_partition_type="1g.5gb"), "impossible"),
        ("ready", LeaseChange(accelerator_partition_type="1g.10gb"), "conflict"),
        ("active", LeaseChange(unattended=True), "conflict"),
        ("closed", LeaseChange(priority=1), "conflict"),
    ],
    ids=["the impossible", "what is granted", "what is taken", "what has ended"],
)
async def test_what_cannot_be_changed_is_refused_at_once(rig: Rig, state: str, change: LeaseChange, code: str) -> None:
    node = await rig.node()
    if state == "queued":
        await rig.active("held", "7g.80gb")
    lease = await rig.acquire("1", "2g.20gb")
    if state != "queued":
        await node.turn()
    if state == "active":
        await rig.hub.renew(lease.lease_id)
    if state == "closed":
        await rig.release(lease)
        await node.turn(2)
    before = await rig.state(lease)
    assert before.state == state
    with pytest.raises(AllocatorRefused) as caught:
        await rig.hub.change(lease.lease_id, change)
    assert caught.value.code == code
    after = await rig.state(lease)
    assert (after.state, after.asked, after.unattended) == (before.state, before.asked, before.unattended)


async def test_who_has_left_is_offered_the_slice_for_a_while_and_then_it_passes_on(make_rig: MakeRig) -> None:
    rig = await make_rig(claim_window=300)
    node = await rig.node()
    held = await rig.active("held", "7g.80gb")
    away = await rig.acquire("1", "7g.80gb", unattended=True)
    following = await rig.acquire("2", "7g.80gb")
    await rig.release(held)
    await node.turn(2)
    offered = await rig.state(away)
    assert (offered.state, offered.unattended) == (LeaseState.READY, True)
    assert offered.claim_until is not None
    assert 299 <= (offered.claim_until - rig.clock.now).total_seconds() <= 300
    assert f"Claim it by {offered.claim_until:%H:%M} UTC" in offered.detail
    await rig.tick(299)
    assert (await rig.state(away)).state is LeaseState.READY
    await rig.tick(2)
    for _ in range(3):
        await node.turn()
    ended, next_one = await rig.state(away), await rig.state(following)
    assert (ended.state, ended.reason) == (LeaseState.CLOSED, EndReason.NOT_TAKEN)
    assert "passed on to the next" in ended.detail
    assert (next_one.state, next_one.claim_until) == (LeaseState.READY, None)


@pytest.mark.parametrize("way", ["claim", "ask again", "change", "renew"])
async def test_who_comes_back_in_time_keeps_it(make_rig: MakeRig, way: str) -> None:
    rig = await make_rig(claim_window=300, ready_timeout=600)
    await rig.node()
    lease = await rig.ready("1", unattended=True)
    await rig.tick(299)
    match way:
        case "claim":
            back = await rig.hub.claim(lease.lease_id)
        case "ask again":
            back = await rig.acquire("1")
        case "change":
            back = await rig.hub.change(lease.lease_id, LeaseChange(unattended=False))
        case _:
            back = await rig.hub.renew(lease.lease_id)
    assert back.claim_until is None
    # From now on the ready timeout counts, anew.
    await rig.nodes["n1"].report()
    await rig.tick(598 if way != "renew" else 10)
    assert (await rig.state(lease)).state in (LeaseState.READY, LeaseState.ACTIVE)
    if way != "renew":
        await rig.tick(3)
        assert (await rig.state(lease)).reason is EndReason.NOT_TAKEN


async def test_a_wait_outlives_who_left(rig: Rig) -> None:
    lease = await _waiting(rig, wait_budget=None)
    left = await rig.hub.change(lease.lease_id, LeaseChange(unattended=True))
    assert (left.unattended, left.position) == (True, 1)
    await rig.tick(100_000)
    assert (await rig.state(lease)).state is LeaseState.QUEUED
    # Who asks again while it waits stands by again, at the old place.
    back = await rig.acquire("1", "7g.80gb")
    assert (back.lease_id, back.unattended, back.queued_at) == (lease.lease_id, False, lease.queued_at)


async def test_asking_again_from_away_claims_nothing(rig: Rig) -> None:
    lease = await rig.acquire("1", unattended=True)
    assert (await rig.acquire("1", unattended=True)).unattended
    assert (await rig.hub.claim(lease.lease_id)).unattended is False
    assert (await rig.hub.claim(lease.lease_id)).unattended is False


async def test_who_comes_back_while_the_slice_is_made_keeps_it(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.acquire("1", unattended=True)
    assert lease.state is LeaseState.GRANTED
    assert (await rig.hub.claim(lease.lease_id)).unattended is False
    assert (await rig.hub.change(lease.lease_id, LeaseChange(unattended=True))).unattended
    await node.turn()
    assert (await rig.state(lease)).state is LeaseState.READY


async def test_what_has_ended_cannot_be_claimed(rig: Rig) -> None:
    await rig.node()
    lease = await rig.acquire("1", unattended=True)
    await rig.release(lease)
    with pytest.raises(AllocatorRefused, match="has ended") as caught:
        await rig.hub.claim(lease.lease_id)
    assert caught.value.code == "conflict"


async def test_a_longer_wait_is_seen_by_who_watches(rig: Rig) -> None:
    lease = await _waiting(rig)
    await rig.hub.change(lease.lease_id, LeaseChange(min_memory=30))

    async def served() -> bool:
        return (await rig.state(lease)).state is LeaseState.GRANTED

    assert await until(served)
