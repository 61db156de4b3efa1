"""A ledger that was lost, or is an old copy, is rebuilt from pods and from the agents' reports."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kubernetes_asyncio.client import V1Container, V1ObjectMeta, V1Pod, V1PodSpec

from mig_spawner.allocator.claim import parse_claim
from mig_spawner.allocator.pods.base import PodSighting
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.spawner.pod import edit_pod
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.node import Health
from tests.allocator.cluster import annotations_of
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Node, Rig

Lose = Callable[[Rig], Awaitable[tuple[Rig, Node]]]


def pod_of(lease: LeaseDocument, name: str = "", *, node: str | None = "n1", **said: str) -> PodSighting:
    """The pod of a lease as Kubernetes shows it; `said` as in `annotations_of`."""
    name = name or f"jupyter-{lease.holder.user_id}"
    claim = parse_claim(annotations_of(lease, **said), node)
    return PodSighting(f"uid-{name}", lease.lease_id, "hub", name, "Running", claim.device_uuid, claim)


def with_id(lease: LeaseDocument, lease_id: str, user: str) -> LeaseDocument:
    """Another lease on the same memory slices."""
    holder = lease.holder.model_copy(update={"user_id": user})
    return lease.model_copy(update={"lease_id": lease_id, "holder": holder})


@pytest.mark.parametrize("duration", [None, 3600])
@pytest.mark.parametrize("profile", ["2g.20gb", None], ids=["slice", "whole"])
async def test_the_spawner_writes_what_is_read_here(rig: Rig, profile: str | None, duration: float | None) -> None:
    await rig.node()
    lease = await rig.ready("a", profile, server="work", duration=duration)
    pod = V1Pod(metadata=V1ObjectMeta(name="a"), spec=V1PodSpec(containers=[V1Container(name="notebook")]))
    written = edit_pod(pod, lease, None, runtime_class="").metadata.annotations
    expected = annotations_of(lease)
    assert {name: written[name] for name in expected} == expected
    assert parse_claim(written, "n1") == pod_of(lease).claim


@pytest.fixture
def lose(make_rig: MakeRig) -> Lose:
    """A new allocator with an empty ledger, which has not heard of anything; its one node is the old one's."""

    async def lose(rig: Rig) -> tuple[Rig, Node]:
        again = await make_rig("new.sqlite", pod_watch=True, listed=False)
        old = rig.nodes["n1"]
        again.nodes["n1"] = Node("n1", again.client(again.tokens["n1"]), old.boards, applied=old.applied)
        return again, again.nodes["n1"]

    return lose


@pytest.mark.parametrize("pods_first", [True, False])
@pytest.mark.parametrize("profile", ["2g.20gb", None], ids=["slice", "whole"])
async def test_an_empty_ledger_learns_what_there_is(
    make_rig: MakeRig, lose: Lose, profile: str | None, pods_first: bool
) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.active("a", profile, server="work", duration=7200)
    again, node = await lose(rig)
    if pods_first:
        await again.show(pod_of(lease))
        assert await again.metric("mig_pod_orphan_count") == 1
        await node.report()
    else:
        await node.report()
        await again.show(pod_of(lease))
    found = await again.state(lease)
    assert (found.state, found.holder, found.device_uuid) == (LeaseState.ACTIVE, lease.holder, lease.device_uuid)
    assert found.placement is not None
    assert lease.placement is not None
    same = {"granted_at", "expires_at", "node", "start", "size", "profile", "cut", "share"}
    assert found.placement.model_dump(include=same) == lease.placement.model_dump(include=same)
    assert await again.metric("mig_pod_orphan_count") == 0
    row = again.audit(lease)[0]
    assert (row.before, row.after, "rebuilt from pod hub/jupyter-a" in row.why) == (None, "active", True)
    # It goes on as if nothing had been: it expires when it was to expire, and its instance goes with it.
    await again.tick(7201)
    await node.report()
    assert (await again.state(lease)).reason is EndReason.EXPIRED
    await again.show()
    again.clock.move(60)
    await node.turn(3)
    await again.show()
    await node.turn(3)
    assert (await again.state(lease)).state is LeaseState.CLOSED
    assert node.board.instances == {}


async def test_nothing_is_granted_or_destroyed_before_the_pods_are_known(make_rig: MakeRig, lose: Lose) -> None:
    """Idle devices may be somebody's: his notebook thinks."""
    rig = await make_rig(pod_watch=True)
    await rig.node(dynamic=False, report=False)
    rig.nodes["n1"].board.add("7g.80gb", 0)
    await rig.nodes["n1"].report()
    lease = await rig.active("a", "7g.80gb")
    again, node = await lose(rig)
    await node.report()
    waiting = await again.acquire("b", "7g.80gb")
    assert waiting.state is LeaseState.QUEUED
    offer = (await again.hub.availability()).offer("7g.80gb")
    assert offer is not None
    assert (offer.free, offer.reason) == (0, "not available now: the pods of the cluster have not been listed yet")
    await again.show(pod_of(lease))
    assert (await again.state(waiting)).state is LeaseState.QUEUED
    again.clock.move(5)
    await again.show()
    await node.report()
    assert (await again.state(waiting)).state is LeaseState.READY


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"node": "n2"}, "it runs on node n2, but GPU GPU-n1-0 is in node n1"),
        ({"gpu_uuid": "GPU-9"}, "no node reports GPU GPU-9"),
        ({"device_uuid": "MIG-9"}, "does not show"),
        ({"profile": "2g.20gb"}, "does not show"),
        ({"profile": ""}, "does not show"),
        ({"placement": "0:2"}, "does not show"),
    ],
    ids=str,
)
async def test_a_pod_that_the_report_does_not_bear_out_is_left_out(
    make_rig: MakeRig, lose: Lose, caplog: pytest.LogCaptureFixture, changes: dict[str, str], why: str
) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.active("a")
    again, node = await lose(rig)
    await node.report()
    caplog.clear()
    for _ in range(3):
        await again.show(pod_of(lease, **changes))
        await again.tick()
    assert (await again.hub.leases()).leases == ()
    assert await again.metric("mig_pod_orphan_count") == 1
    said = [record.message for record in caplog.records if "jupyter-a" in record.message]
    assert (len(said), why in said[0]) == (1, True)
    if "placement" in changes:
        # What it claims is out of reach as well, though nothing is seen there.
        assert (await again.hub.availability()).offer("1g.10gb").free == 4  # type: ignore[union-attr]


async def test_a_pod_that_cannot_be_read_is_left_out(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    for _ in range(2):
        await rig.show(PodSighting("u", "x", "hub", "odd", "Running", None, None, "its annotation cannot be read"))
    assert caplog.text.count("its annotation cannot be read") == 1
    assert await rig.metric("mig_pod_orphan_count") == 1


@pytest.mark.parametrize("health", [Health.BAD, Health.OK])
async def test_a_silent_node_or_a_sick_gpu_proves_nothing(make_rig: MakeRig, lose: Lose, health: Health) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.active("a")
    again, node = await lose(rig)
    node.board.health = health
    await node.report()
    again.clock.move(61 if health is Health.OK else 0)
    await again.show(pod_of(lease))
    assert (await again.hub.leases()).leases == ()
    node.board.health = Health.OK
    await node.report()
    assert (await again.state(lease)).state is LeaseState.ACTIVE


async def test_of_two_pods_on_one_slice_the_first_has_it(make_rig: MakeRig, lose: Lose) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    lease = await rig.active("a", "7g.80gb")
    second = with_id(lease, "second", "b")
    again, node = await lose(rig)
    await node.report()
    await again.show(pod_of(lease), pod_of(second))
    assert [found.lease_id for found in (await again.hub.leases()).leases] == [lease.lease_id]
    assert await again.metric("mig_pod_orphan_count") == 1
    noted = again.audit(lease)[-1]
    assert (noted.before, noted.after) == ("active", "active")
    assert "pod hub/jupyter-b of lease second is left out" in noted.why
    await again.tick()
    assert again.audit(lease)[-1] == noted
    # The first one goes: its slice is not free, and not destroyed either, but the other's.
    again.clock.move(5)
    await again.show(pod_of(second))
    await node.turn(2)
    assert (await again.state(lease)).state is LeaseState.CLOSED
    found = await again.state(second)
    assert (found.state, found.device_uuid) == (LeaseState.ACTIVE, lease.device_uuid)
    assert node.destroyed == []
    assert await again.metric("mig_pod_orphan_count") == 0


async def test_a_holder_gets_one_lease_back(make_rig: MakeRig, lose: Lose) -> None:
    rig = await make_rig(pod_watch=True)
    await rig.node()
    one, two = await rig.active("a"), await rig.active("b")
    again, node = await lose(rig)
    await node.report()
    await again.show(pod_of(one), pod_of(with_id(two, two.lease_id, "a"), "other"))
    assert [found.lease_id for found in (await again.hub.leases()).leases] == [one.lease_id]
    assert f"has lease {one.lease_id} already" in again.audit(one)[-1].why
    # What the other one lives on is out of reach all the same.
    assert (await again.acquire("c", "7g.80gb")).state is LeaseState.QUEUED
    assert len((await node.turn()).instances) == 1
    assert len(node.board.instances) == 2


async def test_a_pod_whose_lease_holds_another_device_keeps_its_own_out_of_reach(make_rig: MakeRig) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node(dynamic=False, report=False)
    node.board.add("3g.40gb", 0)
    other = node.board.add("3g.40gb", 4)
    await node.report()
    lease = await rig.active("a", "3g.40gb")
    assert other.mig_uuid is not None
    assert lease.device_uuid != other.mig_uuid
    await rig.show(pod_of(lease, device_uuid=other.mig_uuid))
    assert (await rig.acquire("b", "3g.40gb")).state is LeaseState.QUEUED


@pytest.fixture
async def restored(make_rig: MakeRig, tmp_path: Path) -> Callable[[Rig], Awaitable[tuple[Rig, Node]]]:
    """An allocator on the copy of the ledger that `copy.sqlite` holds; its node is the old one's."""

    async def restore(rig: Rig) -> tuple[Rig, Node]:
        again = await make_rig("copy.sqlite", pod_watch=True, listed=False)
        old = rig.nodes["n1"]
        again.nodes["n1"] = Node("n1", again.client(again.tokens["n1"]), old.boards, applied=old.applied)
        return again, again.nodes["n1"]

    return restore


def back_up(rig: Rig) -> None:
    with rig.app.desk.store.writing():
        shutil.copy(rig.database, rig.database.with_name("copy.sqlite"))
        shutil.copy(f"{rig.database}-wal", rig.database.with_name("copy.sqlite-wal"))


async def test_an_old_ledger_does_not_destroy_what_is_in_use_by_now(make_rig: MakeRig, restored: Lose) -> None:
    """It remembers an instance that was to be destroyed; another one stands there by now, under the same UUID."""
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    old = await rig.active("a", "7g.80gb")
    await rig.release(old)
    await node.report()
    assert (await rig.state(old)).state is LeaseState.CLOSED
    back_up(rig)
    await node.turn()
    lease = await rig.active("b", "7g.80gb")
    assert lease.device_uuid == old.device_uuid
    again, node = await restored(rig)
    assert (await node.turn()).destroy == ()
    await again.show(pod_of(lease))
    assert (await again.state(lease)).state is LeaseState.ACTIVE
    assert (await node.turn()).destroy == ()
    assert len(node.board.instances) == 1


async def test_an_old_ledger_finds_who_waited_then_served(make_rig: MakeRig, restored: Lose) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    first = await rig.active("a", "7g.80gb")
    lease = await rig.acquire("b", "7g.80gb")
    back_up(rig)
    await rig.release(first)
    await node.turn(3)
    lease = await rig.hub.renew(lease.lease_id)
    again, node = await restored(rig)
    await again.show(pod_of(lease))
    await node.turn(2)
    # The old one's lease is over before the other can have its place.
    await again.release(first, PodFate.GONE)
    await node.turn(2)
    found = await again.state(lease)
    assert (found.state, found.device_uuid) == (LeaseState.ACTIVE, lease.device_uuid)
    assert [row.after for row in again.audit(lease)] == ["queued", "granted", "ready", "active"]
    assert len(node.board.instances) == 1


async def test_an_old_grant_is_not_ready_on_a_device_of_somebody_else(make_rig: MakeRig, restored: Lose) -> None:
    rig = await make_rig(pod_watch=True)
    node = await rig.node()
    granted = await rig.acquire("a", "7g.80gb")
    back_up(rig)
    await rig.release(granted, PodFate.NONE)
    await node.turn(2)
    lease = await rig.active("b", "7g.80gb")
    again, node = await restored(rig)
    await node.report()
    assert (await again.state(granted)).state is LeaseState.GRANTED
    await again.show(pod_of(lease))
    await node.report()
    assert (await again.state(granted)).state is LeaseState.GRANTED
    assert "is left out" in again.audit(granted)[-1].why
    await again.tick(121)
    await node.report()
    assert (await again.state(lease)).state is LeaseState.ACTIVE
    assert (await again.state(granted)).state is LeaseState.QUEUED
