"""What is said of a pod when its slice goes back, on a cluster that has bad days."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from mig_spawner.domain.lease import EndReason, Holder
from mig_spawner.spawner import release as release_module
from mig_spawner.spawner.injection.conflict import LEASE_LABEL
from mig_spawner.spawner.lease import Debt
from mig_spawner.spawner.release import Creation, PodSlot, end_without_lease, let_be, settle
from mig_spawner.testing.kube import EmbeddedKube
from mig_spawner.wire.client import AllocatorClient

if TYPE_CHECKING:
    from tests.spawner.conftest import Embedded, ScriptedAllocator

NAME = "jupyter-ada"


@dataclass
class Scene:
    """A cluster, an allocator, and a server's pod slot."""

    kube: EmbeddedKube
    api: Any
    allocator: ScriptedAllocator
    client: AllocatorClient

    def slot(self) -> PodSlot:
        return PodSlot(self.api, "default", NAME, 2.0)

    def end(self, creation: Creation, *, late_s: float = 30) -> None:
        end_without_lease(self.slot(), creation, logging.getLogger("test"), late_s=late_s)

    async def until_no_pod(self) -> None:
        async with asyncio.timeout(8):
            while await self.pods():
                await asyncio.sleep(0.01)

    async def settle(self, creation: Creation, *, lease_id: str | None = "lease-1", late_s: float = 0.3) -> None:
        debt = Debt(lambda: self.client, Holder("7"), lease_id, None, logging.getLogger("test"))
        await settle(debt, self.slot(), creation, EndReason.STOPPED, late_s=late_s)

    async def create_pod(self, lease_id: str | None) -> None:
        labels = {LEASE_LABEL: lease_id} if lease_id else {}
        spec = {"containers": [{"name": "notebook", "image": "x"}]}
        body = {"metadata": {"name": NAME, "labels": labels}, "spec": spec}
        await self.api.create_namespaced_pod("default", body)

    async def pods(self) -> list[str]:
        return [p.metadata.name for p in (await self.api.list_namespaced_pod("default")).items]

    @property
    def fates(self) -> list[str]:
        return [body["pod"] for _, path, body in self.allocator.calls if path.endswith("release")]

    async def until_fates(self, *fates: str) -> None:
        async with asyncio.timeout(8):
            while self.fates != list(fates):
                await asyncio.sleep(0.01)


@pytest.fixture
def scene(embedded: Embedded, allocator: ScriptedAllocator, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(release_module, "_LOOK_EVERY_S", 0.02)
    return Scene(embedded.kube, embedded.api, allocator, embedded.client)


async def test_a_pod_that_was_never_asked_for_is_none(scene: Scene) -> None:
    await scene.settle(Creation.NONE)
    assert scene.fates == ["none"]


async def test_a_pod_that_was_created_and_is_no_more_is_gone(scene: Scene) -> None:
    await scene.settle(Creation.DONE)
    assert scene.fates == ["gone"]


async def test_a_pod_that_still_is_there_is_deleted_and_then_gone(scene: Scene) -> None:
    await scene.create_pod("lease-1")
    await scene.settle(Creation.DONE)
    assert scene.fates == ["unknown"]
    await scene.until_fates("unknown", "gone")
    assert await scene.pods() == []


async def test_a_pod_that_appears_late_is_deleted_before_the_slice_is_free(scene: Scene) -> None:
    await scene.settle(Creation.TRIED, late_s=30)
    await scene.create_pod("lease-1")
    async with asyncio.timeout(5):
        while await scene.pods():
            await asyncio.sleep(0.01)
    assert scene.fates == ["unknown"], "another may still appear"


async def test_a_pod_that_never_appears_is_gone_after_its_time(scene: Scene) -> None:
    await scene.settle(Creation.TRIED)
    await scene.until_fates("unknown", "gone")


async def test_the_pod_of_the_next_server_is_left_alone(scene: Scene) -> None:
    await scene.create_pod("lease-2")
    await scene.settle(Creation.TRIED)
    await scene.until_fates("unknown", "gone")
    assert await scene.pods() == [NAME]


async def test_while_the_cluster_does_not_answer_nothing_is_known(scene: Scene) -> None:
    scene.kube.knobs.api_down = True
    await scene.settle(Creation.DONE)
    assert scene.fates == ["unknown"]
    scene.kube.knobs.api_down = False
    await scene.until_fates("unknown", "gone")


async def test_a_release_that_nobody_hears_is_said_again(scene: Scene) -> None:
    scene.allocator.release_failures = 2
    await scene.settle(Creation.NONE)
    await scene.until_fates("none", "none", "none")


async def test_an_allocator_that_is_away_holds_nobody_up(scene: Scene) -> None:
    scene.allocator.down = True
    async with asyncio.timeout(1):
        await scene.settle(Creation.NONE)
    scene.allocator.down = False
    await scene.until_fates("none")


async def test_without_an_id_the_holder_gives_back_and_the_answer_names_the_lease(scene: Scene) -> None:
    await scene.create_pod("lease-1")
    await scene.settle(Creation.TRIED, lease_id=None)
    await scene.until_fates("unknown", "gone")
    assert scene.allocator.paths("POST") == ["leases/release", "leases/release"]
    assert await scene.pods() == []


async def test_a_pod_that_will_not_go_keeps_its_slice(scene: Scene) -> None:
    scene.kube.knobs.stuck_terminating = "*"
    await scene.create_pod("lease-1")
    await scene.settle(Creation.DONE)
    async with asyncio.timeout(5):
        while not (await scene.api.read_namespaced_pod(NAME, "default")).metadata.deletion_timestamp:
            await asyncio.sleep(0.01)
    assert scene.fates == ["unknown"]


async def test_a_pod_without_a_lease_that_was_left_behind_is_deleted(scene: Scene) -> None:
    await scene.create_pod(None)
    scene.kube.knobs.delete_failures = 2
    scene.end(Creation.DONE)
    await scene.until_no_pod()
    assert scene.allocator.calls == []


async def test_a_pod_without_a_lease_that_comes_late_is_deleted(scene: Scene) -> None:
    scene.end(Creation.TRIED)
    await scene.create_pod(None)
    await scene.until_no_pod()


async def test_what_the_next_server_of_the_name_makes_is_its_own(scene: Scene) -> None:
    scene.end(Creation.TRIED)
    let_be(scene.slot())
    await scene.create_pod(None)
    await scene.settle(Creation.TRIED, late_s=0.1)  # another server's end, which takes several looks
    await scene.until_fates("unknown", "gone")
    assert await scene.pods() == [NAME]


async def test_a_pod_with_a_lease_is_not_ended_as_one_without(scene: Scene) -> None:
    await scene.create_pod("lease-2")
    scene.end(Creation.TRIED)
    await scene.settle(Creation.TRIED, late_s=0.1)
    await scene.until_fates("unknown", "gone")
    assert await scene.pods() == [NAME]
