"""The device that a node's device plugin gave to the pod of a lease: the ledger follows, and nobody loses what is theirs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mig_spawner.allocator.node import NodeService
from mig_spawner.allocator.pods.base import PodSighting
from mig_spawner.allocator.service import Desk, LeaseService
from mig_spawner.allocator.setting import Setting
from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.errors import AllocatorRefused
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.lease import HolderDocument, LeaseDocument, LeaseRelease, LeaseRequest, LeaseState
from mig_spawner.wire.problem import ProblemCode
from tests.allocator.both import make_rig
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import Board, Node, Rig, check_tables
from tests.allocator.store.place import sqlite_place
from tests.allocator.test_recovery import pod_of

__all__ = ["make_rig"]

SMALL = "1g.10gb"
NOBODY: Any = None
"""In the place of a client, where reports are brought by hand."""


@pytest.fixture
async def rig(make_rig: MakeRig) -> Rig:
    return await make_rig()


async def partitions(rig: Rig, *profiles: str) -> Node:
    """A node with these on its GPU, one after the other."""
    node = await rig.node(dynamic=False)
    start = 0
    for profile in profiles or (SMALL,) * 7:
        start += node.board.add(profile, start).size
    await node.report()
    return node


def uuid(node: Node, start: int) -> str:
    return next(str(i.mig_uuid) for key, i in node.board.instances.items() if key[0] == start)


def place(lease: LeaseDocument) -> int:
    assert lease.placement is not None
    return lease.placement.start


async def picked(rig: Rig, user: str, profile: str | None = SMALL) -> LeaseDocument:
    """A lease whose pod is started, and whose device its node picks."""
    return await rig.active(user, profile, picked_by_node=True)


def moved(rig: Rig) -> list[str]:
    """Of whom the event was sent, in order."""
    return [row["lease_id"] for row in rig.rows("SELECT * FROM event ORDER BY number") if row["kind"] == "moved"]


async def refused(rig: Rig, lease: LeaseDocument, device: str, code: ProblemCode) -> str:
    with pytest.raises(AllocatorRefused) as no:
        await rig.hub.learn_device(lease.lease_id, device)
    assert no.value.code == code
    return str(no.value)


async def test_a_lease_moves_to_the_device_that_its_node_gave(rig: Rig) -> None:
    node = await partitions(rig)
    lease = await picked(rig, "ada")
    assert (place(lease), lease.device_known) == (0, False)
    learned = await rig.hub.learn_device(lease.lease_id, uuid(node, 5))
    assert (place(learned), learned.device_uuid, learned.device_known) == (5, uuid(node, 5), True)
    assert learned.state is LeaseState.ACTIVE
    assert await rig.hub.learn_device(lease.lease_id, uuid(node, 5)) == learned
    assert moved(rig) == [lease.lease_id]
    assert rig.audit(lease)[-1].why == f"its node gave it {uuid(node, 5)}, another one like {uuid(node, 0)}"
    # What it was granted first is free; what it has is held, with the work on it, and closed when that is over.
    other = await rig.acquire("bob")
    assert place(other) == 0
    node.board.run(1, 5)
    await node.report()
    await rig.release(learned)
    await node.report()
    assert "a process still runs on its device" in (await rig.state(learned)).detail
    node.board.run(0, 5)
    await node.report()
    assert (await rig.state(learned)).state is LeaseState.CLOSED


async def test_the_leased_device_itself_is_known_from_then_on(rig: Rig) -> None:
    node = await partitions(rig)
    lease = await picked(rig, "ada")
    learned = await rig.hub.learn_device(lease.lease_id, uuid(node, 0))
    assert (place(learned), learned.device_known) == (0, True)
    assert moved(rig) == []


async def test_servers_that_start_together_change_places_until_all_are_where_they_are(rig: Rig) -> None:
    node = await partitions(rig)
    leases = [await picked(rig, str(number)) for number in range(7)]
    order = (3, 0, 6, 2, 5, 1, 4)
    for lease, start in zip(leases, order, strict=True):
        await rig.hub.learn_device(lease.lease_id, uuid(node, start))
        await node.report()
    states = [await rig.state(lease) for lease in leases]
    assert [(place(x), x.device_uuid) for x in states] == [(start, uuid(node, start)) for start in order]
    assert {x.state for x in states} == {LeaseState.ACTIVE}
    assert all(x.device_known for x in states)


async def test_who_has_not_started_yet_changes_places(rig: Rig) -> None:
    node = await partitions(rig)
    ada, bob = await picked(rig, "ada"), await rig.ready("bob", picked_by_node=True)
    await rig.hub.learn_device(ada.lease_id, uuid(node, place(bob)))
    now = await rig.state(bob)
    assert (now.state, now.device_uuid, now.device_known) == (LeaseState.READY, uuid(node, place(ada)), False)
    assert moved(rig) == [bob.lease_id, ada.lease_id]
    assert f"to the pod of lease {ada.lease_id}" in rig.audit(bob)[-1].why


async def test_what_is_still_being_given_back_is_where_nobody_runs(rig: Rig) -> None:
    """The pod of the one that ends has left the device that the kubelet gives to the next."""
    node = await partitions(rig)
    bob = await picked(rig, "bob")
    await rig.hub.learn_device(bob.lease_id, uuid(node, 0))
    await rig.release(bob, pod=PodFate.GONE)
    ada = await picked(rig, "ada")
    assert (place(ada), (await rig.state(bob)).state) == (1, LeaseState.CLOSED)
    eve = await picked(rig, "eve")
    await rig.hub.learn_device(eve.lease_id, uuid(node, place(eve)))
    node.board.run(1, place(eve))
    await rig.release(eve, pod=PodFate.GONE)
    await node.report()
    assert (await rig.state(eve)).state is LeaseState.RELEASING
    await rig.hub.learn_device(ada.lease_id, uuid(node, place(eve)))
    await node.report()
    assert (await rig.state(eve)).state is LeaseState.CLOSED, "the process is that of the next"
    assert place(await rig.state(ada)) == place(eve)


@pytest.mark.parametrize("heard", [True, False], ids=["its node said so", "it is made for it"])
async def test_nobody_loses_the_device_that_is_theirs(rig: Rig, heard: bool) -> None:
    node = await partitions(rig)
    bob = await rig.active("bob", picked_by_node=heard)
    if heard:
        await rig.hub.learn_device(bob.lease_id, uuid(node, 0))
    ada = await picked(rig, "ada")
    before = [await rig.state(lease) for lease in (ada, bob)]
    said = await refused(rig, ada, uuid(node, 0), ProblemCode.CONFLICT)
    assert "leased to another server" in said
    assert [await rig.state(lease) for lease in (ada, bob)] == before
    assert moved(rig) == []


async def test_what_is_no_device_like_it_changes_nothing(rig: Rig) -> None:
    node = await partitions(rig, "2g.20gb", SMALL)
    lease = await picked(rig, "ada")
    await refused(rig, lease, "MIG-unknown", ProblemCode.NOT_FOUND)
    assert "that is a 2g.20gb" in await refused(rig, lease, uuid(node, 0), ProblemCode.CONFLICT)
    await rig.release(lease, reason=EndReason.STOPPED)
    assert "has ended" in await refused(rig, lease, uuid(node, 0), ProblemCode.CONFLICT)
    waiting = await rig.acquire("bob", "2g.20gb", picked_by_node=True)
    assert waiting.state is LeaseState.READY
    eve = await rig.acquire("eve", "2g.20gb", picked_by_node=True)
    assert "not ready" in await refused(rig, eve, uuid(node, 0), ProblemCode.CONFLICT)
    assert rig.rows("SELECT * FROM event WHERE kind = 'moved'") == []


async def test_what_was_cut_for_one_is_no_matter_of_plugins(rig: Rig) -> None:
    node = await rig.node()
    ada, bob = await rig.active("ada"), await rig.active("bob")
    assert "was cut for it" in await refused(rig, ada, uuid(node, place(bob)), ProblemCode.CONFLICT)


async def test_a_whole_gpu_may_be_another_one(rig: Rig) -> None:
    await rig.node(models=("a100-80gb", "a100-80gb"), dynamic=False, mig_enabled=False)
    ada, bob = await picked(rig, "ada", None), await picked(rig, "bob", None)
    assert bob.device_uuid is not None
    learned = await rig.hub.learn_device(ada.lease_id, bob.device_uuid)
    assert (learned.device_uuid, (await rig.state(bob)).device_uuid) == (bob.device_uuid, ada.device_uuid)


async def test_only_the_hub_says_what_a_node_picked(rig: Rig) -> None:
    node = await partitions(rig)
    lease = await picked(rig, "ada")
    agent = rig.client(rig.tokens["n1"])
    with pytest.raises(AllocatorRefused) as no:
        await agent.learn_device(lease.lease_id, uuid(node, 1))
    assert no.value.code == ProblemCode.FORBIDDEN


async def test_a_ledger_that_was_lost_has_a_pod_where_its_node_put_it(make_rig: MakeRig) -> None:
    first = await make_rig("first")
    node = await partitions(first)
    leases = [await picked(first, user) for user in ("ada", "bob")]
    seen: list[PodSighting] = []
    for lease, start in zip(leases, (4, 0), strict=True):
        known = await first.hub.learn_device(lease.lease_id, uuid(node, start))
        seen.append(replace(pod_of(lease, picked_by_node="true"), device_uuid=known.device_uuid))
    again = await make_rig("again", pod_watch=True, listed=False)
    node = await partitions(again)
    await again.show(*seen)
    for lease, start in zip(leases, (4, 0), strict=True):
        found = await again.state(lease)
        assert (found.state, place(found), found.device_uuid) == (LeaseState.ACTIVE, start, uuid(node, start))


class Kubelet:
    """Of a node where everybody's device is picked: it gives each pod any device that no other pod has."""

    def __init__(self, desk: Desk) -> None:
        self.leases, self.nodes = LeaseService(desk), NodeService(desk)
        self.board = Board(find_model("a100-80gb").gpu("GPU-0"), dynamic=False)
        self.free = [str(self.board.add(SMALL, start).mig_uuid) for start in range(4)]
        self.pods: dict[str, str] = {}
        self.told: set[str] = set()
        self.report()

    def report(self) -> None:
        for start in range(4):
            self.board.run(sum(device.endswith(f"-{start}") for device in self.pods.values()), start)
        self.nodes.report("n1", Node("n1", NOBODY, [self.board]).document(), who="agent")

    def ask(self, user: int) -> None:
        holder = HolderDocument(user_id=str(user))
        request = LeaseRequest(holder=holder, accelerator_partition_type=SMALL, picked_by_node=True)
        with suppress(AllocatorRefused):  # what the holder had is still being given back
            self.leases.acquire(request, who="hub")

    def start(self, pick: int) -> None:
        """Somebody who has a lease gets a pod."""
        held = [x for x in self.leases.leases().leases if x.state in {LeaseState.READY, LeaseState.ACTIVE}]
        waiting = [x.lease_id for x in held if x.lease_id not in self.pods]
        if waiting and self.free:
            lease_id = waiting[pick % len(waiting)]
            self.pods[lease_id] = self.free.pop(pick % len(self.free))
            self.leases.renew(lease_id, who="hub")

    def tell(self, pick: int) -> None:
        """The hub reads from a pod which device it has. There is nothing against it, ever."""
        for lease_id in list(self.pods)[pick % 4 :][:1]:
            learned = self.leases.learn(lease_id, self.pods[lease_id], who="hub")
            assert learned.device_uuid == self.pods[lease_id]
            self.told.add(lease_id)

    def end(self, pick: int) -> None:
        for lease_id in list(self.pods)[pick % 4 :][:1]:
            self.free.append(self.pods.pop(lease_id))
            self.leases.release(lease_id, LeaseRelease(pod=PodFate.GONE), who="hub")

    def check(self) -> None:
        for lease in self.leases.leases().leases:
            if lease.lease_id in self.told & self.pods.keys():
                assert lease.device_uuid == self.pods[lease.lease_id]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["ask", "ask", "start", "start", "tell", "end", "report"]), st.integers(0, 11)),
        max_size=40,
    )
)
def test_where_all_is_picked_nobody_is_refused_and_the_ledger_follows(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        place = sqlite_place(Path(folder))
        kubelet = Kubelet(Desk(place.store(), Setting(), lambda _: None))
        for step, pick in steps:
            if step == "report":
                kubelet.report()
            else:
                getattr(kubelet, step)(pick)
            check_tables(place.rows)
            kubelet.check()
        place.close()
