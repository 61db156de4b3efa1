"""What nodes have, and what of it can be had: odd profiles, mixed nodes, empty GPUs, nodes that come back as others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mig_spawner.domain.lease import EndReason
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import AllocatorRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import LeaseState
from mig_spawner.wire.queue import LeaseChange
from tests.allocator.rig import Board, Rig


async def free(rig: Rig, profile: str | None) -> int | None:
    """How many are free; None where there is no such offer."""
    offer = (await rig.hub.availability()).offer(profile)
    return None if offer is None else offer.free


async def test_a_profile_that_nobody_knew_is_offered_and_leased(rig: Rig) -> None:
    node = await rig.node(report=False)
    gpu = node.board.gpu
    novel = replace(gpu.profiles[-1], name=ProfileName.parse("5g.77gb+zz"), profile_id=99)
    node.boards = [Board(replace(gpu, profiles=(*gpu.profiles, novel)))]
    await node.report()
    assert await free(rig, "5g.77gb+zz") == 1
    lease = await rig.ready("a", "mig-5g.77gb.zz")
    assert lease.placement is not None
    assert (lease.state, lease.placement.profile) == (LeaseState.READY, "5g.77gb+zz")


async def test_on_a_mixed_node_whole_is_the_uncut_gpu_and_never_the_parent_of_slices(rig: Rig) -> None:
    node = await rig.node(models=("a100-40gb", "a100-40gb"), dynamic=False, report=False)
    cut, uncut = node.boards
    for start in range(7):
        cut.add("1g.5gb", start)
    uncut.mig_enabled = False
    await node.report()
    assert (await free(rig, None), await free(rig, "1g.5gb")) == (1, 7)
    whole = await rig.acquire("a", None)
    assert (whole.state, whole.device_uuid) == (LeaseState.READY, uncut.gpu.gpu_uuid)
    assert (await rig.acquire("b", None)).state is LeaseState.QUEUED
    assert await free(rig, "1g.5gb") == 7


async def test_an_empty_gpu_that_may_not_be_cut_offers_nothing_not_even_itself(rig: Rig) -> None:
    node = await rig.node(dynamic=False)
    assert node.board.mig_enabled
    assert [(o.profile, o.free) for o in (await rig.hub.availability()).offers if o.free] == []
    for wanted in ("1g.10gb", None):
        with pytest.raises(AllocatorRefused, match=r"No GPU here offers 1g\.10gb|cut into fixed slices"):
            await rig.acquire("a", wanted)
    node.board.dynamic = True
    await node.report()
    assert await free(rig, "1g.10gb") == 7


async def test_a_slice_is_never_a_gpu_that_is_not_cut_yet(rig: Rig) -> None:
    """The node has joined, its layout is not in force yet, and somebody is quick."""
    node = await rig.node(dynamic=False, mig_enabled=False)
    assert await free(rig, "1g.10gb") is None
    with pytest.raises(AllocatorRefused, match=r"No GPU here offers 1g\.10gb"):
        await rig.acquire("a")
    node.board.mig_enabled = True
    for start in range(7):
        node.board.add("1g.10gb", start)
    await node.report()
    lease = await rig.acquire("a")
    assert (lease.state, lease.device_uuid) == (LeaseState.READY, node.board.instances[0, 1, 19].mig_uuid)


async def test_a_node_that_comes_back_rebuilt_has_what_it_shows_and_nothing_of_before(rig: Rig) -> None:
    old = await rig.node("n1", models=("a100-80gb", "a100-80gb"))
    lease = await rig.active("a")
    old.boot_id = "boot-of-another-machine"
    old.boards = [Board(find_model("h100-80gb").gpu("GPU-of-another-machine"))]
    await old.turn(2)
    ended = await rig.state(lease)
    assert ended.reason is EndReason.NODE_REBOOTED
    assert await free(rig, "1g.10gb") == 7, "of the GPU that is there, and of no other"
    new = await rig.ready("b")
    assert new.placement is not None
    assert new.placement.gpu_uuid == "GPU-of-another-machine"


async def test_another_device_in_the_same_place_is_not_the_one_that_was_leased(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    node.board.add("1g.10gb", 0)
    await node.report()
    lease = await rig.hub.renew((await rig.acquire("a")).lease_id)
    made = node.board.add("1g.10gb", 0, mig_uuid="MIG-00000000-0000-5000-8000-000000000001")
    await node.report()
    ended = await rig.state(lease)
    assert (ended.state, ended.reason) == (LeaseState.RELEASING, EndReason.DEVICE_LOST)
    assert ended.device_uuid != made.mig_uuid


async def test_two_gpus_with_the_same_instance_ids_are_two(rig: Rig) -> None:
    node = await rig.node(models=("a100-80gb", "a100-80gb"), dynamic=False, report=False)
    for board in node.boards:
        board.add("3g.40gb", 0)
    assert len({i.gpu_instance_id for b in node.boards for i in b.instances.values()}) == 1
    await node.report()
    leases = [await rig.acquire(user, "3g.40gb") for user in ("a", "b")]
    assert {lease.state for lease in leases} == {LeaseState.READY}
    assert len({lease.device_uuid for lease in leases}) == 2


async def test_while_somebody_else_changes_a_node_nothing_of_it_is_offered(rig: Rig) -> None:
    node = await rig.node()
    lease = await rig.active("a")
    said = "mig-manager is changing the layout of this node."
    await node.client.report("n1", node.document().model_copy(update={"problem": said}))
    waiting = await rig.acquire("b")
    assert waiting.state is LeaseState.QUEUED
    assert await free(rig, "1g.10gb") == 0
    assert (await rig.state(lease)).state is LeaseState.ACTIVE
    await node.report()
    assert (await rig.state(waiting)).state is LeaseState.GRANTED


async def test_a_report_that_is_refused_spoils_no_other_node(rig: Rig) -> None:
    odd = await rig.node("n1", models=("a30",))
    good = await rig.node("n2")
    document = odd.document().model_dump(mode="json")
    document["gpus"][0]["profiles"][0]["name"] = "disabled"
    async with rig.http(rig.tokens["n1"]) as http:
        answer = await http.put("api/v1/nodes/n1", json=document)
    assert answer.status_code == 400
    assert "disabled" in answer.text
    await good.report()
    assert (await free(rig, "1g.6gb"), await free(rig, "1g.10gb")) == (4, 7)
    assert (await rig.acquire("a")).state is LeaseState.GRANTED


async def test_a_device_is_had_by_either_form_of_its_name(rig: Rig) -> None:
    node = await rig.node(dynamic=False, report=False)
    made = [node.board.add("1g.10gb", start) for start in (3, 5)]
    await node.report()
    gpu, name = node.board.gpu.gpu_uuid, str(made[1].mig_uuid)
    older = f"MIG-{gpu}/{made[1].gpu_instance_id}/0"
    assert name.upper() != name
    for user, asked in (("a", older), ("a", name), ("a", name.replace("-n1-", "-N1-"))):
        lease = await rig.acquire(user, None, mig_uuid=asked)
        assert (lease.state, lease.device_uuid) == (LeaseState.READY, name), "it is one device, and one lease"
    waiting = await rig.acquire("b", None, mig_uuid=older)
    assert waiting.state is LeaseState.QUEUED
    moved = await rig.hub.change(waiting.lease_id, LeaseChange(mig_uuid=f"MIG-{gpu}/{made[0].gpu_instance_id}/0"))
    assert moved.device_uuid == made[0].mig_uuid


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("MIG-{gpu}/0/1", "stands here", id="compute instance first"),
        pytest.param("MIG-{gpu}/1/1", "stands here", id="another compute instance"),
        pytest.param("MIG-GPU-elsewhere/1/0", "stands here", id="another GPU"),
    ],
)
async def test_a_name_of_the_older_form_that_is_of_no_device_is_impossible(rig: Rig, name: str, words: str) -> None:
    node = await rig.node(dynamic=False, report=False)
    assert node.board.add("1g.10gb", 0).gpu_instance_id == 1
    await node.report()
    with pytest.raises(AllocatorRefused, match=words) as caught:
        await rig.acquire("a", None, mig_uuid=name.format(gpu=node.board.gpu.gpu_uuid))
    assert caught.value.code == "impossible"
