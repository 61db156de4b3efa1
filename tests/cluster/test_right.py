"""The allocator has exactly the rights it uses: those of the Role that is shipped, on a real API server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client
from kubernetes_asyncio.utils import create_from_dict

from mig_spawner.allocator.pods.base import LEASE_LABEL, PodListing
from mig_spawner.allocator.pods.kube import KubePods
from mig_spawner.testing.controlplane.run import ControlPlane
from tests.cluster import manifest
from tests.cluster.right import account, grant, told_verbs, verbs_of
from tests.controlplane.corner import Corner, eventually

pytestmark = pytest.mark.controlplane

NAME = "mig-allocator"
SHIPPED = verbs_of(manifest.find("Role", NAME)["rules"])


class Watch:
    """A pod watch with some account's rights, and what came of it."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def take(self, listing: PodListing) -> None:
        self.seen |= {pod.name for pod in listing.pods}

    @asynccontextmanager
    async def running(self, kubeconfig: Path, namespace: str) -> AsyncIterator[None]:
        # A list is begun again only long after the test: what comes in between, the watch has told.
        task = asyncio.create_task(KubePods(str(kubeconfig), namespace, watch_s=120, retry_s=120).run(self.take))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def own(corner: Corner) -> AsyncIterator[client.ApiClient]:
    """The allocator, with the account that is shipped and no right yet."""
    await create_from_dict(corner.admin, manifest.find("ServiceAccount", NAME), namespace=corner.namespace)
    async with account(corner, NAME) as own:
        yield own


@pytest.fixture
def kubeconfig(control_plane: ControlPlane, own: client.ApiClient, tmp_path: Path) -> Path:
    return control_plane.write_kubeconfig(tmp_path / "own.yaml", token=own.configuration.api_key["BearerToken"])


async def make_pod(corner: Corner, name: str) -> None:
    metadata = {"name": name, "labels": {LEASE_LABEL: f"lease-{name}"}}
    spec = {"containers": [{"name": "notebook", "image": "demo:1"}], "nodeSelector": {"no": "node"}}
    await corner.core.create_namespaced_pod(
        corner.namespace, {"metadata": metadata, "spec": spec}, field_validation="Strict"
    )


def subject(corner: Corner) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": NAME, "namespace": corner.namespace}


async def test_the_shipped_role_and_binding_are_enough(corner: Corner, own: client.ApiClient, kubeconfig: Path) -> None:
    for kind in ("Role", "RoleBinding"):
        await create_from_dict(corner.admin, manifest.find(kind, NAME), namespace=corner.namespace)

    async def allowed() -> bool:
        return await told_verbs(own, corner.namespace) == SHIPPED

    await eventually(allowed, "exactly the shipped rights")
    watch = Watch()
    await make_pod(corner, "before")
    async with watch.running(kubeconfig, corner.namespace):
        await eventually(lambda: saw(watch, "before"), "the pod in the list")
        await make_pod(corner, "after")
        await eventually(lambda: saw(watch, "after"), "the pod in the watch")


@pytest.mark.parametrize("removed", sorted(SHIPPED), ids=lambda verb: "-".join(verb))
async def test_no_verb_of_the_role_is_too_many(
    corner: Corner,
    own: client.ApiClient,
    kubeconfig: Path,
    caplog: pytest.LogCaptureFixture,
    removed: tuple[str, str],
) -> None:
    await grant(corner, subject(corner), own, SHIPPED - {removed})
    caplog.set_level(logging.WARNING)

    async def complained() -> bool:
        return "does not show its pods now: 403" in caplog.text

    watch = Watch()
    async with watch.running(kubeconfig, corner.namespace):
        await eventually(complained, "a complaint about the right that is missing")


async def test_nothing_outside_is_allowed(corner: Corner, own: client.ApiClient) -> None:
    await grant(corner, subject(corner), own, SHIPPED)
    core: Any = client.CoreV1Api(own)
    here, pod = corner.namespace, {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    assert [p.metadata.name for p in (await core.list_namespaced_pod(here)).items] == []
    for attempt in (
        core.read_namespaced_pod("one", here),
        core.create_namespaced_pod(here, pod),
        core.delete_namespaced_pod("one", here),
        core.patch_namespaced_pod("one", here, {}),
        core.list_namespaced_secret(here),
        core.list_namespaced_event(here),
        core.list_namespaced_pod("kube-system"),
        core.list_pod_for_all_namespaces(),
        core.list_node(),
    ):
        with pytest.raises(client.ApiException) as refused:
            await attempt
        assert refused.value.status == 403


async def saw(watch: Watch, name: str) -> bool:
    return name in watch.seen
