"""The decisive paths of `tests/spawner/hub` on a real API server, with a real scheduler and real controllers."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from mig_spawner.testing.controlplane.run import ControlPlane
from mig_spawner.wire.lease import LeaseState
from tests.spawner.cluster.real import RealCluster
from tests.spawner.hub.conftest import Desk, World

pytestmark = [pytest.mark.controlplane, pytest.mark.hub, pytest.mark.slow]

MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster(tmp_path_factory.mktemp("cluster"), control_plane) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def world(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"), cluster)
    try:
        made.start_allocator()
        made.agent.start()
        made.start_hub()
        yield made
    finally:
        for part in reversed(made.parts):
            part.kill(signal.SIGTERM if part is not made.hub else signal.SIGKILL)


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desk]:
    world.heal()
    desk = Desk(world)
    try:
        await desk.until(desk.all_free, "a world at rest")
        yield desk
    finally:
        await desk.close()


async def cordon(cluster: RealCluster, cordoned: bool) -> None:
    async with cluster.cluster_client() as admin:
        spec = {"spec": {"unschedulable": cordoned}}
        (await admin.patch("api/v1/nodes/gpu-a", json=spec, headers=MERGE)).raise_for_status()


async def test_a_server_has_its_slice_and_gives_it_back(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [lease] = (await desk.allocator.leases()).leases
    assert (await ada.environment())["NVIDIA_VISIBLE_DEVICES"] == lease.device_uuid
    pod = await ada.pod()
    assert pod is not None
    assert pod["spec"]["nodeName"] == "gpu-a"
    await ada.stop()
    await desk.clean(ada)


async def test_cancelled_while_its_pod_is_being_created_it_leaves_nothing(
    desk: Desk, control_plane: ControlPlane
) -> None:
    """The API server stands still, and does what it was asked for when it goes on."""
    ada, bob = await desk.person(), await desk.person("bob")
    await bob.start({"mig": "none"})  # the hub watches its pods from here on
    await desk.until(bob.ready)
    pid = control_plane.pids["kube-apiserver"]
    os.kill(pid, signal.SIGSTOP)
    try:
        await ada.start({"mig": "small"})
        await desk.until(desk.held)
        assert (await ada.stop()).status_code in {202, 204}
    finally:
        os.kill(pid, signal.SIGCONT)
    await desk.until(ada.stopped)
    await bob.stop()
    await desk.clean(ada)


async def test_a_pod_of_the_same_name_in_the_way_costs_no_lease(desk: Desk) -> None:
    ada = await desk.person()
    container = {"name": "notebook", "image": "notebook:1", "command": ["sleep", "600"]}
    stray = {"metadata": {"name": f"jupyter-{ada.name}"}, "spec": {"containers": [container]}}
    (await desk.kube.post("pods", json=stray)).raise_for_status()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    [lease] = (await desk.allocator.leases()).leases
    pod = await ada.pod()
    assert pod is not None
    assert pod["metadata"]["labels"]["mig-spawner/lease"] == lease.lease_id
    await ada.stop()
    await desk.clean(ada)


async def test_a_cluster_that_refuses_the_pod_gives_the_slice_back(desk: Desk) -> None:
    ada = await desk.person()
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    (await desk.kube.post("resourcequotas", json=quota)).raise_for_status()

    async def counted() -> bool:
        return bool((await desk.kube.get("resourcequotas/none")).json()["status"].get("used"))

    await desk.until(counted)
    try:
        answer = await ada.start({"mig": "small"})
        message = answer.json()["message"] if answer.status_code != 202 else await ada.failure()
        assert "quota of this cluster is used up" in message
        await desk.until(desk.all_free)
    finally:
        (await desk.kube.delete("resourcequotas/none")).raise_for_status()
    await desk.clean(ada)


async def test_a_node_that_refuses_the_pod_gives_the_slice_back(desk: Desk, cluster: RealCluster) -> None:
    """As a kubelet does whose device plugin is not there yet."""
    ada = await desk.person()
    await cordon(cluster, True)
    try:
        await ada.start({"mig": "small"})
        await desk.until(ada.pod)
        said = "Pod was rejected: Allocate failed due to no healthy devices present"
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": said}
        path = f"pods/jupyter-{ada.name}/status"
        (await desk.kube.patch(path, json={"status": status}, headers=MERGE)).raise_for_status()
        assert "(UnexpectedAdmissionError): Allocate failed due to no healthy devices" in await ada.failure()
        await desk.until(desk.all_free)
    finally:
        await cordon(cluster, False)
    await desk.clean(ada)


async def test_a_pod_that_vanishes_gives_its_slice_back(desk: Desk) -> None:
    ada = await desk.person()
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    (await desk.kube.delete(f"pods/jupyter-{ada.name}")).raise_for_status()
    await desk.clean(ada)


@pytest.mark.parametrize("in_time", [True, False], ids=["adopted", "deleted"])
async def test_a_start_whose_hub_is_killed_goes_on_or_leaves_nothing(
    desk: Desk, world: World, cluster: RealCluster, in_time: bool
) -> None:
    ada = await desk.person()
    await cordon(cluster, True)
    try:
        await ada.start({"mig": "small"})
        await desk.until(ada.pod)
        [before] = (await desk.allocator.leases()).leases
        world.hub.kill()
        if in_time:
            await cordon(cluster, False)

            async def runs() -> bool:
                pod = await ada.pod()
                return pod is not None and bool(pod["status"]["phase"] == "Running")

            await desk.until(runs)
        world.start_hub()
        if in_time:
            await desk.until(ada.ready, "the server is adopted")
            [after] = (await desk.allocator.leases()).leases
            assert after.lease_id == before.lease_id
            await ada.stop()
        await desk.until(ada.stopped)
        await desk.until(desk.all_free)
    finally:
        await cordon(cluster, False)
    await desk.clean(ada)


async def test_a_pod_that_will_not_go_keeps_its_slice_where_all_can_see_it(desk: Desk) -> None:
    """Something else of the cluster holds it by a finalizer."""
    ada = await desk.person("short")
    await ada.start({"mig": "small"})
    await desk.until(ada.ready)
    path = f"pods/jupyter-{ada.name}"
    held = {"metadata": {"finalizers": ["example.org/not-yet"]}}
    (await desk.kube.patch(path, json=held, headers=MERGE)).raise_for_status()
    await ada.stop()
    await desk.until(ada.stopped, "the hub gives up on the pod")
    [lease] = (await desk.allocator.leases()).leases
    assert (lease.state, lease.reason) == (LeaseState.RELEASING, "stopped")
    assert await desk.free() == 6
    (await desk.kube.patch(path, json={"metadata": {"finalizers": None}}, headers=MERGE)).raise_for_status()
    await desk.clean(ada)
