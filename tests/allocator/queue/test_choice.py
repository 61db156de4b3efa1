"""What may be asked for: several choices in order, one device by name, and a priority."""

from __future__ import annotations

import pytest

from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.lease import LeaseState
from tests.allocator.rig import Rig


async def test_the_main_choice_is_taken_when_both_could_be_had(rig: Rig) -> None:
    await rig.node()
    lease = await rig.acquire("1", "3g.40gb", alternatives=["2g.20gb"])
    assert lease.placement is not None
    assert (lease.placement.profile, lease.granted_choice) == ("3g.40gb", 0)
    assert (lease.asked, lease.alternatives) == ("3g.40gb", ("2g.20gb",))


async def test_the_first_alternative_that_can_be_had_is_taken(rig: Rig) -> None:
    await rig.node()
    await rig.active("a", "4g.40gb")
    lease = await rig.acquire("1", None, alternatives=["7g.80gb", "3g.40gb", "1g.10gb"])
    assert lease.placement is not None
    assert (lease.placement.profile, lease.granted_choice) == ("3g.40gb", 2)


async def test_who_waits_with_alternatives_gets_what_comes_first(rig: Rig) -> None:
    node = await rig.node()
    first, _ = await rig.active("a", "4g.40gb"), await rig.active("b", "3g.40gb")
    waiting = await rig.acquire("1", "7g.80gb", alternatives=["3g.40gb"])
    assert (waiting.state, waiting.granted_choice) == (LeaseState.QUEUED, None)
    await rig.release(first)
    await node.turn(2)
    lease = await rig.state(waiting)
    assert (lease.state, lease.granted_choice, lease.queued_at) == (LeaseState.READY, 1, waiting.queued_at)


async def test_some_choice_has_to_be_possible(rig: Rig) -> None:
    await rig.node()
    lease = await rig.acquire("1", "1g.5gb", alternatives=["1g.10gb"])
    assert (lease.state, lease.granted_choice) == (LeaseState.GRANTED, 1)
    with pytest.raises(AllocatorRefused, match=r"No GPU here offers 1g\.5gb") as caught:
        await rig.acquire("2", "1g.5gb", alternatives=["1g.6gb"])
    assert caught.value.code == "impossible"


async def test_asking_again_for_other_alternatives_is_a_conflict_while_it_waits(rig: Rig) -> None:
    await rig.node()
    await rig.acquire("a", "7g.80gb")
    lease = await rig.acquire("1", "3g.40gb", alternatives=["2g.20gb"])
    assert (await rig.acquire("1", "3g.40gb", alternatives=["2g.20gb"])).lease_id == lease.lease_id
    with pytest.raises(AllocatorRefused) as caught:
        await rig.acquire("1", "3g.40gb")
    assert caught.value.code == "conflict"


async def test_a_device_is_had_by_its_name(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    devices = [node.board.add("1g.10gb", start).mig_uuid for start in (0, 1, 2)]
    await node.report()
    lease = await rig.acquire("1", None, mig_uuid=devices[1])
    assert (lease.state, lease.device_uuid) == (LeaseState.READY, devices[1])
    waiting = await rig.acquire("2", None, mig_uuid=devices[1])
    assert waiting.state is LeaseState.QUEUED
    # Who waits for one device holds up nobody who takes another.
    assert [(await rig.acquire(user)).device_uuid for user in "34"] == [devices[0], devices[2]]
    await rig.release(lease)
    await node.turn()
    assert (await rig.state(waiting)).device_uuid == devices[1]


async def test_a_device_that_does_not_stand_here_is_impossible(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.ready("1")
    with pytest.raises(AllocatorRefused, match="ask for the profile instead") as caught:
        await rig.acquire("2", None, mig_uuid=lease.device_uuid)
    assert caught.value.code == "impossible"
    assert node.board.instances


async def test_a_greater_priority_goes_first_and_within_one_the_first_to_come(rig: Rig) -> None:
    node = await rig.node()
    held = await rig.active("a", "7g.80gb")
    priorities = {"low": -5, "first": 0, "second": 0, "high": 7}
    leases = {name: await rig.acquire(name, "7g.80gb", priority=number) for name, number in priorities.items()}
    now = {name: await rig.state(lease) for name, lease in leases.items()}
    assert {name: lease.position for name, lease in now.items()} == {"high": 1, "first": 2, "second": 3, "low": 4}
    assert now["high"].priority == 7
    await rig.release(held)
    await node.turn(2)
    assert (await rig.state(leases["high"])).state is LeaseState.READY
