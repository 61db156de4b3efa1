"""The pod watch against an API server: pods with a lease label come, change and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config

from mig_spawner.allocator.pods.base import DEVICE_ANNOTATION, LEASE_LABEL, PodListing
from mig_spawner.allocator.pods.kube import KubePods
from mig_spawner.domain.lease import EndReason
from mig_spawner.testing.kube import EmbeddedKube
from mig_spawner.wire.lease import LeaseState
from tests.allocator.conftest import MakeRig
from tests.allocator.rig import until


class Cluster:
    """An API server with pods that run because a test says so."""

    def __init__(self, kubeconfig: Path, core: client.CoreV1Api) -> None:
        self.kubeconfig = str(kubeconfig)
        self.core = core

    async def pod(self, name: str, lease_id: str | None, *, env: str = "", device: str = "") -> None:
        labels = {} if lease_id is None else {LEASE_LABEL: lease_id}
        container: dict[str, Any] = {"name": "notebook", "image": "x"}
        if env:
            container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": env}]
        metadata: Any = {"name": name, "labels": labels, "annotations": {DEVICE_ANNOTATION: device} if device else {}}
        body: Any = {"metadata": metadata, "spec": {"containers": [container]}}
        await self.core.create_namespaced_pod("default", body)

    async def phase(self, name: str, phase: str) -> None:
        await self.core.patch_namespaced_pod_status(name, "default", {"status": {"phase": phase}})

    async def delete(self, name: str) -> None:
        await self.core.delete_namespaced_pod(name, "default", grace_period_seconds=0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(EmbeddedKube())
        kubeconfig = tmp_path / "kubeconfig.yaml"
        kube.write_kubeconfig(kubeconfig)
        configuration = client.Configuration()
        await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        api = await stack.enter_async_context(client.ApiClient(configuration))
        yield Cluster(kubeconfig, client.CoreV1Api(api))


class Listings:
    """What a watch has delivered."""

    def __init__(self) -> None:
        self.all: list[PodListing] = []

    async def take(self, listing: PodListing) -> None:
        self.all.append(listing)

    @property
    def pods(self) -> dict[str, str | None]:
        """The device by lease id, of the newest listing."""
        return {pod.lease_id: pod.device_uuid for pod in self.all[-1].pods} if self.all else {}

    async def show(self, expected: dict[str, str | None]) -> None:
        async def shown() -> bool:
            return bool(self.all) and self.pods == expected

        await until(shown)


@pytest.fixture
async def listings(cluster: Cluster) -> AsyncIterator[Listings]:
    listings = Listings()
    watch = KubePods(cluster.kubeconfig, "", watch_s=1, retry_s=0.1)
    task = asyncio.create_task(watch.run(listings.take))
    yield listings
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_with_a_lease_are_listed(cluster: Cluster, listings: Listings) -> None:
    await listings.show({})
    await cluster.pod("other", None)
    await cluster.pod("one", "lease-1", env="MIG-1")
    await listings.show({"lease-1": "MIG-1"})
    await cluster.pod("two", "lease-2", env="MIG-1", device="MIG-2")
    await cluster.pod("three", "lease-3")
    await listings.show({"lease-1": "MIG-1", "lease-2": "MIG-2", "lease-3": None})
    await cluster.delete("one")
    await listings.show({"lease-2": "MIG-2", "lease-3": None})


async def test_a_pod_that_has_ended_is_gone(cluster: Cluster, listings: Listings) -> None:
    await cluster.pod("one", "lease-1")
    await listings.show({"lease-1": None})
    uid = listings.all[-1].pods[0].uid
    await cluster.phase("one", "Succeeded")
    await listings.show({})
    assert uid in listings.all[-1].gone


async def test_lists_are_begun_again_and_again(cluster: Cluster, listings: Listings) -> None:
    await cluster.pod("one", "lease-1")

    async def rebegun() -> bool:
        fresh = [listing for listing in listings.all if listing.age.total_seconds() < 0.5 and listing.pods]
        return len(fresh) >= 2

    await until(rebegun)


async def test_one_namespace_can_be_watched(cluster: Cluster) -> None:
    elsewhere = Listings()
    task = asyncio.create_task(KubePods(cluster.kubeconfig, "elsewhere", watch_s=1).run(elsewhere.take))
    await cluster.pod("one", "lease-1")
    await elsewhere.show({})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("kubeconfig", ["/nowhere/kubeconfig", "in-cluster"])
async def test_a_cluster_that_cannot_be_reached_is_tried_again(
    kubeconfig: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = asyncio.create_task(KubePods(kubeconfig, "", retry_s=0.01).run(Listings().take))

    async def tried_twice() -> bool:
        return caplog.text.count("cannot be used") >= 2

    await until(tried_twice)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_lease_lives_and_ends_with_its_pod(cluster: Cluster, make_rig: MakeRig) -> None:
    rig = await make_rig(kubeconfig=cluster.kubeconfig, namespace="default", clock=None)
    node = await rig.node()
    lease = await rig.ready("a")
    await cluster.pod("jupyter-a", lease.lease_id)

    async def taken() -> bool:
        return (await rig.state(lease)).state is LeaseState.ACTIVE

    async def ended() -> bool:
        return (await rig.state(lease)).reason is EndReason.POD_GONE

    await until(taken)
    await cluster.delete("jupyter-a")
    await until(ended)
    await node.turn(2)
    assert (await rig.state(lease)).state is LeaseState.CLOSED
