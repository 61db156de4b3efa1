"""Pods that no server has, on a cluster, against what the ledger says of their leases."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from mig_spawner.spawner import sweep as sweep_module
from mig_spawner.spawner.injection.conflict import LEASE_LABEL
from mig_spawner.spawner.sweep import HUB_LABEL, USER, Place, Sweep, begin_sweep, hub_mark
from mig_spawner.testing.kube import EmbeddedKube
from mig_spawner.wire.client import AllocatorClient
from tests.spawner.conftest import make_lease

if TYPE_CHECKING:
    from tests.spawner.conftest import Embedded, ScriptedAllocator

SERVERS = {"component": "singleuser-server"}
LOG = logging.getLogger("test")
EARLIER, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
PLACE = Place("default", "singleuser-server", hub_mark("http://hub:8081/hub/api", "default"))


@dataclass(eq=False)
class FakeServer:
    """A server of the hub, as a sweep sees it; `rows` are those that the hub's database says run, and `ended` when others ended."""

    sweep_key: tuple[str, str] = ("default", "jupyter-ada")
    sweep_row: int | None = 1
    sweep_lease: str | None = None
    sweep_active: bool = False
    rows: set[int] = field(default_factory=set)
    ended: dict[tuple[str, str], datetime] = field(default_factory=lambda: {("ada", ""): LATER})

    def sweep_rows(self) -> set[int]:
        return self.rows

    def sweep_ended(self, user_name: str, server_name: str) -> datetime | None:
        return self.ended.get((user_name, server_name))


class Scene:
    """A cluster, an allocator, and a hub's sweep."""

    def __init__(self, kube: EmbeddedKube, api: Any, allocator: ScriptedAllocator, client: AllocatorClient) -> None:
        self.kube = kube
        self.api = api
        self.allocator = allocator
        self.client = client
        self.sweep = self.of(PLACE)

    def meet(self, server: FakeServer) -> FakeServer:
        """The hub looks at one of its servers."""
        begin_sweep(Place("elsewhere", "singleuser-server"), server, lambda: self.client, self.api, 2.0, LOG)
        return server

    def of(self, place: Place) -> Sweep:
        return Sweep(place, lambda: self.client, self.api, 2.0, LOG)

    async def create(self, lease_id: str | None = "lease-1", namespace: str = "default", **labels: str) -> None:
        labels = {**SERVERS, **({LEASE_LABEL: lease_id} if lease_id else {}), **labels}
        spec = {"containers": [{"name": "notebook", "image": "x"}]}
        about = {"name": f"jupyter-{lease_id or 'cpu'}", "labels": labels, "annotations": {USER: "ada"}}
        body = {"metadata": about, "spec": spec}
        await self.api.create_namespaced_pod(namespace, body)

    async def pods(self) -> list[str]:
        return [p.metadata.name for p in (await self.api.list_pod_for_all_namespaces()).items]


@pytest.fixture
def scene(embedded: Embedded, allocator: ScriptedAllocator) -> Scene:
    return Scene(embedded.kube, embedded.api, allocator, embedded.client)


@pytest.mark.parametrize("state", ["releasing", "closed"])
async def test_a_pod_whose_lease_is_over_is_deleted_at_the_second_look(
    scene: Scene, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene.allocator.answers = [make_lease(state, reason="stopped")]
    await scene.create()
    await scene.sweep.look()
    assert await scene.pods() == ["jupyter-lease-1"], "whoever ended the lease may be at it"
    await scene.sweep.look()
    assert await scene.pods() == []
    assert "Deleting the pod jupyter-lease-1: no server has it, and its lease lease-1 is over (stopped)." in caplog.text


@pytest.mark.parametrize("answer", [make_lease("ready"), make_lease("active"), (404, "not-found"), (503, "starting")])
async def test_a_pod_whose_lease_is_not_known_to_be_over_is_left_alone(scene: Scene, answer: Any) -> None:
    scene.allocator.answers = [answer]
    await scene.create()
    for _ in range(3):
        await scene.sweep.look()
    assert await scene.pods() == ["jupyter-lease-1"]


async def test_it_must_be_over_at_two_looks_one_after_the_other(scene: Scene) -> None:
    over, there = make_lease("releasing", reason="stopped"), make_lease("active")
    scene.allocator.answers = [over, there, over, over]
    await scene.create()
    for _ in range(3):
        await scene.sweep.look()
    assert await scene.pods() == ["jupyter-lease-1"]
    await scene.sweep.look()
    assert await scene.pods() == []


async def test_other_pods_are_none_of_its_business(scene: Scene) -> None:
    scene.allocator.answers = [make_lease("closed", reason="stopped")]
    await scene.create(None)
    await scene.create("batch", component="somebody-else")
    for _ in range(3):
        await scene.sweep.look()
    assert sorted(await scene.pods()) == ["jupyter-batch", "jupyter-cpu"]
    assert scene.allocator.calls == []


async def test_what_a_server_of_this_hub_has_is_left_to_its_server(scene: Scene) -> None:
    scene.allocator.answers = [make_lease("releasing", reason="expired")]
    await scene.create()
    server = scene.meet(FakeServer(sweep_lease="lease-1"))
    for _ in range(3):
        await scene.sweep.look()
    assert await scene.pods() == ["jupyter-lease-1"]
    server.sweep_lease = None
    for _ in range(2):
        await scene.sweep.look()
    assert await scene.pods() == []


async def test_a_pod_without_a_lease_that_no_server_has_is_deleted_at_the_second_look(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.meet(bob := FakeServer(("default", "jupyter-bob"), 2, rows={2}))
    await scene.create(None, **{HUB_LABEL: PLACE.mark})
    await scene.sweep.look()
    assert await scene.pods() == ["jupyter-cpu"]
    await scene.sweep.look()
    assert await scene.pods() == []
    assert "jupyter-cpu: it has no lease, and the server that it was made for has ended." in caplog.text
    assert bob.sweep_rows() == {2}


@pytest.mark.parametrize(
    ("label", "server"),
    [
        pytest.param({}, {}, id="somebody else made it"),
        pytest.param({HUB_LABEL: hub_mark("http://other:8081/hub/api", "default")}, {}, id="another hub made it"),
        pytest.param({HUB_LABEL: PLACE.mark, "component": "batch"}, {}, id="it is no server"),
        pytest.param({HUB_LABEL: PLACE.mark}, {"rows": {1}}, id="its server runs"),
        pytest.param({HUB_LABEL: PLACE.mark}, {"sweep_active": True}, id="its server is on its way"),
        pytest.param({HUB_LABEL: PLACE.mark}, {"rows": {1, 9}}, id="the hub has not looked at all its servers yet"),
        pytest.param({HUB_LABEL: PLACE.mark}, {"sweep_row": None}, id="there is no database"),
        pytest.param({HUB_LABEL: PLACE.mark}, {"ended": {}}, id="the database does not know the server"),
        pytest.param(
            {HUB_LABEL: PLACE.mark}, {"ended": {("ada", ""): EARLIER}}, id="the database is of before the pod"
        ),
        pytest.param(
            {HUB_LABEL: hub_mark("http://hub:8081/hub/api", "another")}, {}, id="a hub of another namespace made it"
        ),
    ],
)
async def test_a_pod_that_may_be_somebodys_is_left_alone(
    scene: Scene, label: dict[str, str], server: dict[str, Any]
) -> None:
    ada = scene.meet(FakeServer(**{"sweep_key": ("default", "jupyter-cpu"), **server}))
    await scene.create(None, **label)
    for _ in range(3):
        await scene.sweep.look()
    assert await scene.pods() == ["jupyter-cpu"]
    del ada


async def test_a_pod_without_a_lease_that_has_ended_is_left_for_whoever_reads_its_log(scene: Scene) -> None:
    scene.meet(ada := FakeServer())
    await scene.create(None, **{HUB_LABEL: PLACE.mark})
    await scene.api.patch_namespaced_pod_status("jupyter-cpu", "default", {"status": {"phase": "Failed"}})
    for _ in range(3):
        await scene.sweep.look()
    assert await scene.pods() == ["jupyter-cpu"]
    del ada


async def test_a_hub_with_a_namespace_for_each_person_looks_at_all(scene: Scene) -> None:
    scene.allocator.answers = [make_lease("closed", reason="stopped")]
    await scene.api.create_namespace({"metadata": {"name": "jupyter-ada"}})
    await scene.create(namespace="jupyter-ada")
    sweep = scene.of(Place(None, "singleuser-server"))
    for _ in range(2):
        await sweep.look()
    assert await scene.pods() == []


async def test_it_goes_on_when_the_cluster_is_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sweep_module, "SWEEP_S", 0.02)
    caplog.set_level(logging.INFO)
    scene.allocator.answers = [make_lease("closed", reason="stopped")]
    await scene.create()
    scene.kube.knobs.api_down = True
    server = FakeServer()
    for _ in range(2):  # the second server of a hub begins no second one
        begin_sweep(PLACE, server, lambda: scene.client, scene.api, 2.0, LOG)
    async with asyncio.timeout(8):
        while "Pods could not be compared" not in caplog.text:
            await asyncio.sleep(0.01)
        scene.kube.knobs.api_down = False
        while await scene.pods():
            await asyncio.sleep(0.01)
