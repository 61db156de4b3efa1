"""The ways on a real cluster: API server, scheduler, collector and rights are Kubernetes' own, the hub has a hub's account."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client
from kubespawner import KubeSpawner
from kubespawner.clients import load_config

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.injection.trait import WAYS
from mig_spawner.wire.lease import LeaseDocument

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator
    from tests.spawner.injection.conftest import Corner

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

MIG = "nvidia.com/mig-1g.10gb"
GIVEN = "MIG-given-by-the-kubelet"
UUIDS = [f"MIG-{number}d9e4a1c-0000-5000-8000-000000000000" for number in range(3)]
SHOW = "import os, time; print(os.environ.get('NVIDIA_VISIBLE_DEVICES'), flush=True); time.sleep(600)"
MakeLease = Callable[..., LeaseDocument]
MakeServer = Callable[..., MIGSpawner]


@pytest.fixture
async def kubeconfig(corner: Corner, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The hub's, in place of the one that leads nowhere."""
    before = client.Configuration.get_default_copy()
    monkeypatch.setattr(
        "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(corner.hub_kubeconfig)
    )
    monkeypatch.setattr(KubeSpawner, "reflectors", {})
    load_config.cache_clear()
    yield corner.hub_kubeconfig
    for reflector in KubeSpawner.reflectors.values():
        await reflector.stop()
    load_config.cache_clear()
    client.Configuration.set_default(before)


@pytest.fixture
def make_server(
    corner: Corner, make_spawner: Callable[..., MIGSpawner], allocator: ScriptedAllocator, lease: MakeLease
) -> MakeServer:
    """Makes servers with a lease on one of the devices; each server is asked for after the one before it has its lease."""

    def make(way: str, device: str = UUIDS[0], *, name: str = "server", choice: str = "small") -> MIGSpawner:
        given = lease(lease_id=f"lease-{name}", device_uuid=device)
        assert given.placement is not None
        placement = given.placement.model_copy(update={"node": corner.node})
        allocator.answers = [given.model_copy(update={"placement": placement})]
        return make_spawner(
            injection=way,
            namespace=corner.namespace,
            pod_name_template=name,
            image="demo/notebook:1",
            cmd=[sys.executable, "-c", SHOW],
            user_options={"mig": choice},
            dra_device_class=corner.device_class,
            nvidia_runtime_class="",
            start_timeout=60,
            k8s_api_request_retry_timeout=20,
        )

    return make


async def told(corner: Corner, spawner: MIGSpawner, words: str) -> str:
    """What a person who waits reads of the scheduler."""

    async def event() -> str | None:
        return next((e["message"] for e in spawner.events if words in e["message"]), None)

    return str(await corner.eventually(event, f"an event with {words!r}"))


async def ended(corner: Corner, spawner: MIGSpawner) -> None:
    """As the hub ends a server."""
    await spawner.stop(now=True)
    await spawner.run_post_stop_hook()


@pytest.mark.parametrize("choice", ["small", "none"])
@pytest.mark.parametrize("way", WAYS)
async def test_every_pod_is_valid_to_the_last_field(
    corner: Corner, make_server: MakeServer, way: str, choice: str
) -> None:
    spawner = make_server(way, choice=choice)
    if way == "dra":
        await corner.allow_dra()
    await spawner.load_user_options()
    pod = await spawner.get_pod_manifest()
    made = await corner.core.create_namespaced_pod(corner.namespace, pod, dry_run="All", field_validation="Strict")
    assert made.metadata.name == "server"


# --- dra ----------------------------------------------------------------------------------------------------------------


async def test_the_scheduler_allocates_exactly_the_leased_device_and_the_claim_goes_with_the_pod(
    corner: Corner, make_server: MakeServer, tmp_path: Path
) -> None:
    await corner.allow_dra()
    async with corner.published(UUIDS), corner.running(tmp_path / "kubelet") as kubelet:
        leased = {"first": UUIDS[2], "second": UUIDS[0]}
        servers = []
        for name, uuid in leased.items():
            servers.append(make_server("dra", uuid, name=name))
            await servers[-1].start()
        claims = {name.rpartition("-")[0]: claim for name, claim in (await corner.claims()).items()}
        for name, uuid in leased.items():
            claim = claims[f"mig-lease-{name}"]
            [result] = claim.status.allocation.devices.results
            number = UUIDS.index(uuid)
            assert (result.driver, result.pool) == ("gpu.nvidia.com", corner.node)
            assert result.device == f"gpu-0-mig-19-{number}-1"
            [user] = claim.status.reserved_for
            assert user.name == name
        assert len(kubelet.running()) == 2
        assert kubelet.log_path(corner.namespace, "first").read_text().split() == ["void"]
        assert not any("not found" in event["message"] for server in servers for event in server.events)
        await ended(corner, servers[0])

        async def gone() -> bool:
            return [name.rpartition("-")[0] for name in await corner.claims()] == ["mig-lease-second"]

        await corner.eventually(gone, "the end of the claim")
        assert await servers[1].poll() is None


async def test_a_device_that_the_driver_does_not_publish_is_waited_for_with_the_schedulers_words(
    corner: Corner, make_server: MakeServer, tmp_path: Path
) -> None:
    await corner.allow_dra()
    async with corner.published(UUIDS[:1]), corner.running(tmp_path / "kubelet"):
        server = make_server("dra", UUIDS[1])
        starting = server.start()
        await told(corner, server, "cannot allocate all claims")
        starting.cancel()
        await asyncio.wait([starting])
        await ended(corner, server)

        async def gone() -> bool:
            return await corner.claims() == {}

        await corner.eventually(gone, "the end of the claim")
        assert await corner.pods() == []


async def test_a_second_start_on_the_same_lease_has_a_claim_of_its_own(
    corner: Corner, make_server: MakeServer, tmp_path: Path
) -> None:
    """As after a hub that was killed in the middle of a start: the pod is there, and nobody remembers it."""
    await corner.allow_dra()
    async with corner.published(UUIDS), corner.running(tmp_path / "kubelet"):
        await make_server("dra", UUIDS[1]).start()
        [before] = await corner.claims()
        again = make_server("dra", UUIDS[1])
        await again.start()

        async def one() -> Any:
            claims = await corner.claims()
            return len(claims) == 1 and before not in claims and next(iter(claims.values()))

        claim = await corner.eventually(one, "the end of the first claim")
        assert claim.status.allocation.devices.results[0].device == "gpu-0-mig-19-1-1"
        await ended(corner, again)


async def test_a_right_that_is_missing_is_said_before_anybody_waits(
    corner: Corner,
    make_server: MakeServer,
    allocator: ScriptedAllocator,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server("dra")
    with caplog.at_level(logging.ERROR), pytest.raises(SpawnRefused) as refused:
        await server.start()
    assert refused.value.reason == Reason.INVALID.value
    sentence = "may not create resourceclaims.resource.k8s.io"
    assert sentence in str(refused.value.jupyterhub_message)
    assert sentence in caplog.text
    assert "hub-dra-role.yaml" in caplog.text
    assert await corner.pods() == []
    assert allocator.paths("POST") == []


async def test_the_rights_are_what_the_shipped_role_grants_and_nothing_beyond(corner: Corner) -> None:
    role, binding = corner.dra_manifests()
    for create, manifest in (
        (corner.rbac.create_namespaced_role, role),
        (corner.rbac.create_namespaced_role_binding, binding),
    ):
        await create(corner.namespace, manifest, dry_run="All")
    await corner.allow_dra()
    claims: Any = client.ResourceV1Api(corner.hub)
    for forbidden in (
        claims.list_namespaced_resource_claim(corner.namespace),
        claims.read_namespaced_resource_claim("x", corner.namespace),
        claims.delete_namespaced_resource_claim("x", corner.namespace),
        claims.list_resource_slice(),
    ):
        with pytest.raises(client.ApiException) as refused:
            await forbidden
        assert refused.value.status == 403


# --- device-plugin ------------------------------------------------------------------------------------------------------


async def test_the_kubelet_picks_and_who_comes_second_waits_with_the_schedulers_words(
    corner: Corner, make_server: MakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with corner.running(tmp_path / "kubelet", **{MIG: "1"}) as kubelet:
        first = make_server("device-plugin", UUIDS[0], name="first")
        await first.start()
        pod = await corner.core.read_namespaced_pod("first", corner.namespace)
        assert pod.spec.node_name == corner.node
        assert pod.spec.containers[0].resources.requests[MIG] == "1"

        async def shown() -> bool:
            return kubelet.log_path(corner.namespace, "first").read_text() != ""

        await corner.eventually(shown, "the variable in the process")
        assert kubelet.log_path(corner.namespace, "first").read_text().split() == [GIVEN]

        second = make_server("device-plugin", UUIDS[1], name="second")
        starting = second.start()
        assert f"Insufficient {MIG}" in await told(corner, second, "Insufficient")
        await ended(corner, first)
        await starting
        assert f"{corner.namespace}/second" in kubelet.running()
        await ended(corner, second)


async def test_the_device_that_the_kubelet_gave_is_read_from_the_status_and_told(
    corner: Corner, make_server: MakeServer, allocator: ScriptedAllocator, tmp_path: Path
) -> None:
    def told() -> list[str]:
        return [body["device_uuid"] for body in allocator.bodies("leases/lease-server/device")]

    async with corner.running(tmp_path / "kubelet", **{MIG: "1"}):
        server = make_server("device-plugin", UUIDS[0])
        await server.start()
        assert told() == [GIVEN]
        # A kubelet may also write it later than the start.
        given = [{"name": MIG, "resources": [{"resourceID": UUIDS[2], "health": "Healthy"}]}]
        patch = [{"op": "replace", "path": "/status/containerStatuses/0/allocatedResourcesStatus", "value": given}]
        await corner.core.patch_namespaced_pod_status("server", corner.namespace, patch)

        async def learned() -> bool:
            assert await server.poll() is None
            return told()[-1] == UUIDS[2]

        await corner.eventually(learned, "the device at the allocator")
        await ended(corner, server)
