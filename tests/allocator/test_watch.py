"""The allocator's watch of pods on an API server, the embedded one and a real one, with the rights that we ship for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from mig_spawner.allocator.pods.base import PodListing
from mig_spawner.allocator.pods.kube import KubePods
from mig_spawner.domain.lease import EndReason
from mig_spawner.testing.controlplane import ControlPlane
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from tests.allocator.cluster import Cluster, annotations_of, embedded_cluster, real_cluster
from tests.allocator.conftest import MakeRig, rigs
from tests.allocator.rig import Clock, Node, Rig, until
from tests.kube.referee import Referee

# The real server lives in the event loop of the session, and so does whoever restarts it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 30


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.controlplane)])
def plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real server, or None for an embedded one."""
    if request.param == "embedded":
        return None
    # Not an argument: the embedded server's tests need no control plane.
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(plane: ControlPlane | None, tmp_path: Path, referee: Referee | None) -> AsyncIterator[Cluster]:
    async with embedded_cluster(tmp_path, referee) if plane is None else real_cluster(plane, tmp_path) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def make_rig(tmp_path: Path, clock: Clock, empty_ledger: Path) -> AsyncIterator[MakeRig]:
    async with rigs(tmp_path, clock, empty_ledger) as make:
        yield make


@pytest.fixture
def watching(make_rig: MakeRig, cluster: Cluster) -> Callable[..., Awaitable[Rig]]:
    """An allocator that watches the cluster, by the real time."""

    async def make(database: str = "ledger.sqlite", **traits: float) -> Rig:
        watch = KubePods(cluster.kubeconfig, cluster.namespace, watch_s=2, retry_s=0.1)
        return await make_rig(database, clock=None, pod_watch=watch, **traits)

    return make


Watching = Callable[..., Awaitable[Rig]]


async def is_(rig: Rig, lease: LeaseDocument, state: LeaseState) -> LeaseDocument:
    """Wait until a lease is in a state."""

    async def there() -> LeaseDocument | None:
        found = await rig.state(lease)
        return found if found.state is state else None

    found = await until(there, SECONDS)
    assert found is not None
    return found


async def ready(rig: Rig, user: str, *, duration: float | None = None) -> LeaseDocument:
    """A lease whose device has been made; nothing is granted before the pods are known."""
    lease = await rig.acquire(user, duration=duration)
    if lease.state is LeaseState.QUEUED:
        lease = await is_(rig, lease, LeaseState.GRANTED)
    await rig.nodes["n1"].turn()
    return await rig.state(lease)


async def closed(rig: Rig, node: Node, lease: LeaseDocument) -> LeaseDocument:
    """Wait until a lease is closed, while its node goes on reporting."""

    async def over() -> LeaseDocument | None:
        await node.turn()
        found = await rig.state(lease)
        return found if found.state is LeaseState.CLOSED else None

    found = await until(over, SECONDS)
    assert found is not None
    return found


async def orphans(rig: Rig, count: int) -> None:
    async def counted() -> bool:
        return await rig.metric("mig_pod_orphan_count") == count

    await until(counted, SECONDS)


async def test_a_lease_lives_and_ends_with_its_pod(cluster: Cluster, watching: Watching) -> None:
    rig = await watching()
    node = await rig.node()
    lease = await ready(rig, "a")
    assert lease.state is LeaseState.READY
    await cluster.pod("jupyter-a", lease.lease_id)
    await is_(rig, lease, LeaseState.ACTIVE)
    assert await rig.metric("mig_pod_orphan_count") == 0
    await cluster.delete("jupyter-a")
    await is_(rig, lease, LeaseState.RELEASING)
    assert (await closed(rig, node, lease)).reason is EndReason.POD_GONE


async def test_a_pod_without_a_lease_keeps_its_device(cluster: Cluster, watching: Watching) -> None:
    rig = await watching()
    node = await rig.node(dynamic=False, report=False)
    device = node.board.add("1g.10gb", 0)
    assert device.mig_uuid is not None
    await cluster.pod("stranger", "unknown", env=device.mig_uuid)
    await orphans(rig, 1)
    await node.report()
    lease = await rig.acquire("a")
    await rig.tick()
    assert (await rig.state(lease)).state is LeaseState.QUEUED
    await cluster.delete("stranger")
    assert (await is_(rig, lease, LeaseState.READY)).device_uuid == device.mig_uuid
    await orphans(rig, 0)


async def test_a_lease_without_a_pod_lives_on_heartbeats(cluster: Cluster, watching: Watching) -> None:
    rig = await watching(heartbeat_timeout=1.5, settle_after=0)
    node = await rig.node()
    lease = await ready(rig, "a")
    await rig.hub.renew(lease.lease_id)

    async def listed_since() -> bool:
        with rig.app.desk.store.reading() as tx:
            listed_at, active = tx.pods_listed_at(), (await rig.hub.renew(lease.lease_id)).state
        return active is LeaseState.ACTIVE and listed_at is not None and listed_at > lease.queued_at

    await until(listed_since, SECONDS)
    ended = await closed(rig, node, lease)
    assert ended.reason is EndReason.HOLDER_LOST


async def test_a_lost_ledger_is_rebuilt_from_pods_and_agents(cluster: Cluster, watching: Watching) -> None:
    rig = await watching()
    node = await rig.node()
    lease = await ready(rig, "a", duration=3600)
    await cluster.pod("jupyter-a", lease.lease_id, annotations=annotations_of(lease), node="n1")
    lease = await is_(rig, lease, LeaseState.ACTIVE)

    again = await watching("new.sqlite")
    node = again.nodes["n1"] = Node("n1", again.client(again.tokens["n1"]), node.boards, applied=node.applied)
    await node.report()

    async def rebuilt() -> bool:
        return [found.lease_id for found in (await again.hub.leases()).leases] == [lease.lease_id]

    await until(rebuilt, SECONDS)
    found = await again.state(lease)
    assert found.placement is not None
    assert lease.placement is not None
    assert found == lease.model_copy(
        update={
            "queued_at": found.queued_at,
            "placement": lease.placement.model_copy(update={"generation": found.placement.generation}),
        }
    )
    assert (await again.acquire("a", duration=3600)).lease_id == lease.lease_id
    assert (await again.acquire("b", "7g.80gb")).state is LeaseState.QUEUED
    await node.turn()
    assert len(node.board.instances) == 1
    await cluster.delete("jupyter-a")
    assert (await closed(again, node, lease)).reason is EndReason.POD_GONE

    async def made() -> bool:
        await node.turn()
        return [str(instance.profile) for instance in node.board.instances.values()] == ["7g.80gb"]

    await until(made, SECONDS)
    again.check()


async def test_a_watch_that_was_cut_sees_what_came_and_went(cluster: Cluster, watching: Watching) -> None:
    rig = await watching()
    await rig.node()
    first, second = await ready(rig, "a"), await ready(rig, "b")
    await cluster.pod("jupyter-a", first.lease_id)
    await is_(rig, first, LeaseState.ACTIVE)
    await cluster.cut()
    await cluster.pod("jupyter-b", second.lease_id)
    await is_(rig, second, LeaseState.ACTIVE)
    assert (await rig.state(first)).state is LeaseState.ACTIVE
    await cluster.delete("jupyter-a")
    await is_(rig, first, LeaseState.RELEASING)


async def test_a_watch_from_too_long_ago_begins_with_a_new_list(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The list is old by the time the watch wants to go on from it."""
    caplog.set_level(logging.INFO, "mig_spawner.allocator.pods.kube")
    listings: list[PodListing] = []

    async def take(listing: PodListing) -> None:
        if not listings:
            await cluster.pod("late", "lease-1")
            await cluster.cut()
        listings.append(listing)

    task = asyncio.create_task(KubePods(cluster.kubeconfig, cluster.namespace, watch_s=2, retry_s=0.1).run(take))

    async def seen() -> bool:
        return bool(listings) and [pod.lease_id for pod in listings[-1].pods] == ["lease-1"]

    await until(seen, SECONDS)
    assert listings[0].pods == ()
    assert " 410 " in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
