"""Reports, and what the allocator makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.errors import AllocatorRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import LeaseRelease, LeaseState
from mig_spawner.wire.node import Health
from tests.allocator.rig import Board, Rig


async def test_a_standing_device_is_ready_at_once_and_never_destroyed(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    made = node.board.add("1g.10gb", 3)
    await node.report()
    lease = await rig.acquire("a")
    assert (lease.state, lease.device_uuid) == (LeaseState.READY, made.mig_uuid)
    desired = await node.turn()
    assert (desired.instances, desired.destroy) == ((), ())
    await rig.release(lease, PodFate.NONE)
    desired = await node.turn()
    assert desired.destroy == ()
    assert (await rig.state(lease)).state is LeaseState.CLOSED
    assert list(node.board.instances.values()) == [made]
    assert (await rig.acquire("b")).device_uuid == made.mig_uuid


async def test_a_partition_of_an_admin_on_a_dynamic_gpu_is_leased_first_and_left_alone(rig: Rig) -> None:
    node = await rig.node(report=False)
    made = node.board.add("2g.20gb", 0)
    await node.report()
    assert (await rig.acquire("a", "2g.20gb")).device_uuid == made.mig_uuid
    cut = await rig.ready("b", "2g.20gb")
    assert cut.device_uuid != made.mig_uuid
    await rig.hub.release_holder("a", "", LeaseRelease(pod=PodFate.GONE))
    await rig.hub.release_holder("b", "", LeaseRelease(pod=PodFate.GONE))
    await node.turn(3)
    assert list(node.board.instances.values()) == [made]
    assert node.destroyed == [("GPU-n1-0", cut.placement.start, 2)]  # type: ignore[union-attr]


@pytest.mark.parametrize("processes", [1, None])
async def test_a_device_with_a_process_is_not_leased(rig: Rig, processes: int | None) -> None:
    node = await rig.node(dynamic=False, report=False)
    node.board.add("1g.10gb", 0, processes=processes)
    await node.report()
    assert (await rig.acquire("a")).state is LeaseState.QUEUED
    node.board.run(0, 0)
    await node.report()
    assert (await rig.hub.leases(user_id="a")).leases[0].state is LeaseState.READY


async def test_a_half_made_instance_is_not_leased_and_takes_its_place(rig: Rig) -> None:
    node = await rig.node(report=False)
    node.board.add("7g.80gb", 0, mig_uuid=None)
    await node.report()
    assert (await rig.acquire("a", "7g.80gb")).state is LeaseState.QUEUED
    assert (await rig.hub.availability()).offer("1g.10gb").free == 0  # type: ignore[union-attr]


async def test_a_whole_gpu_is_uncut_first(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.acquire("a", None)
    assert lease.state is LeaseState.GRANTED
    desired = await node.report()
    assert [whole.gpu_uuid for whole in desired.whole] == ["GPU-n1-0"]
    await node.turn()
    lease = await rig.state(lease)
    assert (lease.state, lease.device_uuid) == (LeaseState.READY, "GPU-n1-0")
    assert lease.placement is not None
    assert (lease.placement.profile, lease.placement.share) == (None, 1.0)
    assert (await rig.acquire("b")).state is LeaseState.QUEUED
    node.board.run(1)
    await rig.release(lease)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.RELEASING
    node.board.run(0)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED
    assert (await rig.hub.leases(user_id="b")).leases[0].state is LeaseState.GRANTED


async def test_an_uncut_gpu_is_whole_at_once_unless_it_is_busy(rig: Rig) -> None:
    node = await rig.node(mig_enabled=None, report=False, processes=1)
    await node.report()
    lease = await rig.acquire("a", None)
    assert lease.state is LeaseState.QUEUED
    node.board.run(0)
    await node.report()
    lease = await rig.state(lease)
    assert (lease.state, lease.device_uuid) == (LeaseState.READY, "GPU-n1-0")


async def test_a_gpu_whose_profiles_are_unknown_while_uncut_is_held_whole(rig: Rig) -> None:
    """Some drivers list no profiles while MIG is off: the grid grows when it is switched on behind our back."""
    node = await rig.node(mig_enabled=False, report=False)
    full = node.board.gpu
    node.boards = [
        Board(type(full)(full.gpu_uuid, full.model, full.memory_mib, full.multiprocessors), mig_enabled=False)
    ]
    await node.report()
    lease = await rig.acquire("a", None)
    assert lease.state is LeaseState.READY
    node.boards = [Board(full, mig_enabled=True)]
    await node.report()
    assert (await rig.state(lease)).reason is EndReason.DEVICE_LOST
    assert (await rig.hub.availability()).offer("1g.10gb").free == 0  # type: ignore[union-attr]


async def test_a_cut_instance_holds_its_slices_until_it_is_reported_gone(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a", "7g.80gb")
    waiting = await rig.acquire("b", "7g.80gb")
    stale = node.applied
    await rig.release(lease)
    desired = await node.report()
    assert (await rig.state(lease)).state is LeaseState.CLOSED
    assert len(desired.destroy) == 1
    assert (await rig.state(waiting)).state is LeaseState.QUEUED
    # A report that was made before the agent learned to destroy it may miss the instance for any reason.
    kept = dict(node.board.instances)
    node.board.instances.clear()
    node.applied = stale
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.QUEUED
    node.board.instances = kept
    await node.turn(2)
    assert (await rig.state(waiting)).state is LeaseState.READY


async def test_a_sick_gpu_does_not_prove_an_instance_gone(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a", "7g.80gb")
    await rig.release(lease)
    desired = await node.report()
    node.obey(desired)
    node.board.health = Health.BAD
    assert len((await node.report()).destroy) == 1
    node.board.health = Health.OK
    assert (await node.report()).destroy == ()


async def test_a_device_uuid_that_repeats_is_not_taken_for_the_new_one(rig: Rig) -> None:
    """A report from before the new grant shows the old device under the same UUID."""
    node = await rig.node()
    first = await rig.active("a", "7g.80gb")
    old = node.document()
    await rig.release(first)
    await node.turn()
    second = await rig.acquire("b", "7g.80gb")
    assert second.state is LeaseState.GRANTED
    await node.client.report("n1", old)
    assert (await rig.state(second)).state is LeaseState.GRANTED
    await node.turn()
    second = await rig.state(second)
    assert (second.state, second.device_uuid) == (LeaseState.READY, first.device_uuid)
    assert second.placement is not None
    assert first.placement is not None
    assert second.placement.generation > first.placement.generation


@pytest.mark.parametrize("taken", [False, True])
async def test_a_device_that_vanishes_ends_its_lease(rig: Rig, taken: bool) -> None:
    node = await rig.node()
    lease = await (rig.active if taken else rig.ready)("a")
    node.board.instances.clear()
    desired = await node.report()
    ended = await rig.state(lease)
    assert (ended.state, ended.reason) == (LeaseState.RELEASING, EndReason.DEVICE_LOST)
    assert desired.instances == ()


async def test_after_a_reboot_the_first_report_ends_the_leases(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    node.board.instances.clear()
    node.applied = 0
    await node.report()
    assert (await rig.state(lease)).reason is EndReason.DEVICE_LOST


@pytest.mark.parametrize("profile", ["1g.10gb", None])
async def test_a_device_that_is_there_again_after_a_boot_is_another_one(rig: Rig, profile: str | None) -> None:
    node = await rig.node()
    lease, granted = await rig.active("a", profile), await rig.acquire("b", "2g.20gb")
    node.boot_id = "boot-2"
    await node.report()
    ended = await rig.state(lease)
    assert (ended.state, ended.reason) == (LeaseState.RELEASING, EndReason.NODE_REBOOTED)
    assert rig.audit(lease)[-1].why == "node n1 has booted"
    rig.clock.move(41)
    await node.turn(2)
    closed = await rig.state(lease)
    assert closed.state is LeaseState.CLOSED
    assert closed.detail.startswith("Its node was restarted")
    await node.turn(2)
    assert (await rig.state(granted)).state is LeaseState.READY, "what had no device yet is made"


async def test_without_a_driver_the_gpus_are_out_of_sight_and_not_gone(rig: Rig) -> None:
    node = await rig.node()
    lease, known = await rig.active("a"), node.document()
    blind = known.model_copy(update={"gpus": (), "problem": "There is no NVIDIA driver here."})
    await node.client.report("n1", blind)
    waiting = await rig.acquire("b")
    assert waiting.state is LeaseState.QUEUED, "it is possible, only not now"
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    offer = (await rig.hub.availability()).offer("1g.10gb")
    assert offer is not None
    assert (offer.free, offer.reason) == (0, "not available now: node n1: There is no NVIDIA driver here.")
    async with rig.http() as http:
        (shown,) = (await http.get("api/v1/nodes")).json()["nodes"]
    assert (shown["problem"], len(shown["gpus"])) == ("There is no NVIDIA driver here.", 1)
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.GRANTED


async def test_a_gpu_that_a_new_agent_cannot_read_yet_is_waited_for(rig: Rig) -> None:
    node = await rig.node()
    report = node.document()
    unread = report.gpus[0].model_copy(
        update={"health": Health.BAD, "health_reason": "busy", "processes": None, "profiles": (), "instances": ()}
        | {"mig_enabled": None, "dynamic": False}
    )
    await node.client.report(node.name, report.model_copy(update={"gpus": (unread,), "boot_id": "boot-2"}))
    waiting = await rig.acquire("1", "1g.10gb")
    assert waiting.state is LeaseState.QUEUED
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.GRANTED


async def test_a_lost_gpu_keeps_its_leases_and_gets_no_new_ones(rig: Rig) -> None:
    node = await rig.node(models=("a100-80gb", "a100-80gb"))
    lease = await rig.active("a", "7g.80gb")
    assert lease.placement is not None
    board = next(b for b in node.boards if b.gpu.gpu_uuid == lease.placement.gpu_uuid)
    board.health = Health.BAD
    board.instances.clear()
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    node.boards.remove(board)
    await node.report()
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    assert (await rig.acquire("b", "7g.80gb")).state is LeaseState.GRANTED


async def test_a_silent_node_gets_no_new_leases_and_keeps_its_old_ones(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    await rig.tick(61)
    availability = await rig.hub.availability()
    assert (availability.nodes, availability.nodes_silent) == (1, 1)
    offer = availability.offer("1g.10gb")
    assert offer is not None
    assert (offer.free, offer.total, offer.reason) == (0, 7, "not available now: node n1 is silent")
    waiting = await rig.acquire("b")
    assert waiting.state is LeaseState.QUEUED
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.GRANTED


@pytest.mark.parametrize("health", [Health.SUSPECT, Health.DRAINING, Health.BAD])
async def test_a_gpu_that_is_not_well_gets_no_lease(rig: Rig, health: Health) -> None:
    node = await rig.node(health=health)
    waiting = await rig.acquire("a")
    assert waiting.state is LeaseState.QUEUED
    node.board.health = Health.OK
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.GRANTED


async def test_a_failed_step_sends_the_lease_to_another_gpu(rig: Rig) -> None:
    node = await rig.node(models=("a100-80gb", "a100-80gb"))
    lease = await rig.acquire("a")
    assert lease.placement is not None
    bad = next(b for b in node.boards if b.gpu.gpu_uuid == lease.placement.gpu_uuid)
    bad.fails = "InsufficientResources"
    await node.turn(2)
    moved = await rig.state(lease)
    assert moved.placement is not None
    assert (moved.state, moved.placement.gpu_uuid != bad.gpu.gpu_uuid) == (LeaseState.READY, True)
    assert moved.placement.generation > lease.placement.generation


async def test_a_failure_of_an_older_try_is_not_believed(rig: Rig) -> None:
    node = await rig.node()
    node.board.fails = "no"
    lease = await rig.acquire("a")
    await node.turn()
    late = node.document()
    node.board.fails = ""
    await node.turn()
    rig.clock.move(61)
    await node.report()
    await rig.tick()
    again = await rig.state(lease)
    assert again.state is LeaseState.GRANTED
    await node.client.report("n1", late)
    assert (await rig.state(lease)).placement == again.placement


async def test_the_generation_moves_only_with_the_content(rig: Rig) -> None:
    node = await rig.node()
    first = await node.report()
    assert (await node.report()).generation == first.generation > 0
    await rig.acquire("a")
    second = await node.report()
    assert second.generation > first.generation
    await node.turn()
    assert (await node.report()).generation == second.generation


async def test_the_engines_of_a_gpu_are_a_limit_of_their_own(rig: Rig) -> None:
    await rig.node(models=("a100-80gb",))
    first = await rig.acquire("a", "1g.10gb+me")
    second = await rig.acquire("b", "1g.10gb+me")
    assert (first.state, second.state) == (LeaseState.GRANTED, LeaseState.QUEUED)
    assert (await rig.acquire("c", "1g.10gb")).state is LeaseState.GRANTED, "who takes no engine holds up nobody"


@pytest.mark.parametrize("model", ["a30", "h100-80gb"])
async def test_a_gpu_is_filled_to_its_last_slice(rig: Rig, model: str) -> None:
    profile = min(find_model(model).profiles, key=lambda p: (p.profile.size, p.profile.name.suffix))
    await rig.node(models=(model,))
    leases = [await rig.acquire(str(i), str(profile.profile.name)) for i in range(profile.max_instances + 1)]
    assert [lease.state for lease in leases] == ["granted"] * profile.max_instances + ["queued"]


async def test_two_nodes_cannot_have_one_gpu(rig: Rig) -> None:
    first = await rig.node("n1")
    second = await rig.node("n2", report=False)
    second.boards = [Board(first.board.gpu)]
    with pytest.raises(AllocatorRefused, match="reported by node n1 already") as caught:
        await second.report()
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    assert (await rig.hub.availability()).nodes == 1


async def test_a_gpu_may_move_when_its_old_node_is_silent(rig: Rig) -> None:
    first = await rig.node("n1")
    second = await rig.node("n2", report=False)
    second.boards = [Board(first.board.gpu)]
    lease = await rig.active("a")
    rig.clock.move(61)
    with pytest.raises(AllocatorRefused, match="reported by node n1 already"):
        await second.report()
    await first.report()
    await rig.release(lease)
    await first.turn(2)
    rig.clock.move(61)
    await second.report()
    assert (await rig.acquire("b")).placement.node == "n2"  # type: ignore[union-attr]
    assert (await rig.hub.availability()).offer(None).total == 1  # type: ignore[union-attr]


async def test_availability_equals_the_last_report(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    for start in range(7):
        node.board.add("1g.10gb", start)
    await node.report()
    assert [(o.profile, o.free) for o in (await rig.hub.availability()).offers] == [("1g.10gb", 7)]
    node.board.instances.clear()
    node.board.add("7g.80gb", 0)
    await node.report()
    assert [(o.profile, o.free) for o in (await rig.hub.availability()).offers] == [("7g.80gb", 1)]


async def test_simulated_gpus_are_called_so(rig: Rig) -> None:
    node = await rig.node()
    assert not (await rig.hub.availability()).simulated
    node.simulated = True
    await node.report()
    assert (await rig.hub.availability()).simulated


async def test_a_cordoned_node_gets_no_new_leases(rig: Rig) -> None:
    node = await rig.node()
    async with rig.http() as http:
        answer = await http.post("/api/v1/nodes/n1/cordon")
        assert (answer.status_code, answer.json()["cordoned"]) == (200, True)
        assert (await node.report()).cordoned
        waiting = await rig.acquire("a")
        assert waiting.state is LeaseState.QUEUED
        assert (await http.post("/api/v1/nodes/n1/uncordon")).json()["cordoned"] is False
        assert (await rig.state(waiting)).state is LeaseState.GRANTED
        assert (await http.post("/api/v1/nodes/nope/cordon")).status_code == 404


async def test_nodes_are_listed_with_what_fails_on_them(rig: Rig) -> None:
    node = await rig.node()
    node.board.fails = "driver says no"
    await rig.acquire("a")
    await node.turn()
    async with rig.http() as http:
        listed: dict[str, Any] = (await http.get("/api/v1/nodes")).json()["nodes"][0]
    assert (listed["node"], listed["silent"], listed["cordoned"]) == ("n1", False, False)
    assert listed["gpus"][0]["gpu_uuid"] == "GPU-n1-0"
    assert listed["failures"][0]["reason"] == "driver says no"


async def test_an_agent_that_knows_the_state_waits_for_the_next(rig: Rig) -> None:
    node = await rig.node()
    desired = await node.report()
    same = await node.client.desired("n1", known=desired.generation, wait_s=0.05)
    assert same == desired
    assert await node.client.desired("n1", known=desired.generation - 1, wait_s=20) == desired
