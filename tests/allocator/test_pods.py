"""The pod watch against an API server: pods with a lease label come, change and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mig_spawner.allocator.claim import DEVICE
from mig_spawner.allocator.pods.base import PodListing
from mig_spawner.allocator.pods.kube import KubePods
from tests.allocator.cluster import Cluster, embedded_cluster
from tests.allocator.rig import until
from tests.kube.referee import Referee


@pytest.fixture
async def cluster(tmp_path: Path, referee: Referee | None) -> AsyncIterator[Cluster]:
    async with embedded_cluster(tmp_path, referee) as cluster:
        yield cluster


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
    watch = KubePods(cluster.admin_kubeconfig, "", watch_s=1, retry_s=0.1)
    task = asyncio.create_task(watch.run(listings.take))
    yield listings
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_with_a_lease_are_listed(cluster: Cluster, listings: Listings) -> None:
    await listings.show({})
    await cluster.pod("other", None)
    await cluster.pod("one", "lease-1", env="MIG-1")
    await listings.show({"lease-1": "MIG-1"})
    await cluster.pod("two", "lease-2", env="MIG-1", annotations={DEVICE: "MIG-2"})
    await cluster.pod("three", "lease-3")
    await listings.show({"lease-1": "MIG-1", "lease-2": "MIG-2", "lease-3": None})
    await cluster.delete("one")
    await listings.show({"lease-2": "MIG-2", "lease-3": None})


async def test_what_the_kubelet_gave_a_pod_counts_and_not_what_its_lease_said(
    cluster: Cluster, listings: Listings
) -> None:
    await cluster.pod("one", "lease-1", annotations={DEVICE: "MIG-1"})
    await listings.show({"lease-1": "MIG-1"})
    await cluster.give("one", "MIG-2::0")
    await listings.show({"lease-1": "MIG-2"})


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
    task = asyncio.create_task(KubePods(cluster.admin_kubeconfig, "elsewhere", watch_s=1).run(elsewhere.take))
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
