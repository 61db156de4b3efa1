"""The hub with exactly the Role that Zero to JupyterHub gives it, on a real API server: enough, and what of it is needed."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio import client, config

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.injection.conflict import LEASE_LABEL
from mig_spawner.spawner.release import PodSlot
from mig_spawner.testing.controlplane.run import HUB
from mig_spawner.testing.kube import Kubelet, NodeSpec
from mig_spawner.wire.lease import LeaseDocument
from tests.cluster.right import HUB_RULES, Verb, grant, told_verbs, verbs_of
from tests.controlplane.corner import Corner, eventually

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB.name}
Z2JH = verbs_of(HUB_RULES)
NEEDED: set[Verb] = {
    *(("pods", verb) for verb in ("get", "list", "watch", "create", "delete")),
    *(("persistentvolumeclaims", verb) for verb in ("create", "delete")),
    *(("events", verb) for verb in ("list", "watch")),
}
"""Of the hub's Role, what MIGSpawner with a volume for each person uses. The rest is KubeSpawner's: `secrets` and `services`
for internal TLS, and reading claims where a quota forbids to create one that is there."""


class Life:
    """All that a hub does with a server: start with a volume, progress, poll, stop, a pod that comes late, the end of its user."""

    def __init__(self, corner: Corner, spawner: MIGSpawner, allocator: ScriptedAllocator) -> None:
        self._corner = corner
        self._spawner = spawner
        self._allocator = allocator

    async def live(self) -> None:
        """Raises, or fails an assertion, where something does not work as it should."""
        spawner = self._spawner
        spawner.user_options = {"mig": "small"}
        await spawner.load_user_options()
        starting = spawner.start()
        steps = [event["message"] async for event in spawner.progress()]
        await starting
        assert any("Successfully assigned" in step for step in steps), steps
        assert await spawner.poll() is None
        await spawner.stop(now=True)
        await spawner.run_post_stop_hook()
        assert [body["pod"] for body in self._allocator.bodies("leases/lease-1/release")] == ["gone"]
        await self._late_pod()
        await spawner.delete_forever()
        await eventually(self._no_claim, "the end of the claim")

    async def _no_claim(self) -> bool:
        """A claim goes a moment after its deletion, once nothing uses it."""
        return not (await self._corner.core.list_namespaced_persistent_volume_claim(self._corner.namespace)).items

    async def _late_pod(self) -> None:
        core, namespace = self._corner.core, self._corner.namespace
        spec = {"containers": [{"name": "notebook", "image": "demo:1"}], "nodeSelector": {"no": "node"}}
        metadata = {"name": "late", "labels": {LEASE_LABEL: "lease-1"}}
        await core.create_namespaced_pod(namespace, {"metadata": metadata, "spec": spec})
        slot = PodSlot(self._spawner.api, namespace, "late", 5)
        late = await slot.find()
        assert late is not None
        await slot.delete(late)
        assert await slot.find() is None


@pytest.fixture
async def hub(kubeconfig: Path) -> AsyncIterator[client.ApiClient]:
    async with await config.new_client_from_config(str(kubeconfig)) as hub:
        yield hub


@pytest.fixture
async def life(
    corner: Corner,
    admin_kubeconfig: Path,
    tmp_path: Path,
    make_spawner: Callable[..., MIGSpawner],
    allocator: ScriptedAllocator,
    lease: Callable[..., LeaseDocument],
) -> AsyncIterator[Life]:
    node = f"node-{corner.namespace}"
    given = lease()
    assert given.placement is not None
    allocator.answers = [given.model_copy(update={"placement": given.placement.model_copy(update={"node": node})})]
    spawner = make_spawner(
        namespace=corner.namespace,
        pod_name_template="server",
        pvc_name_template="home",
        image="demo/notebook:1",
        cmd=[sys.executable, "-c", "import time; time.sleep(600)"],
        nvidia_runtime_class="",
        storage_pvc_ensure=True,
        storage_capacity="1Gi",
        volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}],
        volume_mounts=[{"name": "home", "mountPath": "/home/jovyan"}],
        start_timeout=30,
        k8s_api_request_retry_timeout=2,
    )
    async with Kubelet(admin_kubeconfig, [NodeSpec(node)], state_dir=tmp_path / "kubelet", schedule=False):
        yield Life(corner, spawner, allocator)


@pytest.mark.parametrize("verbs", [Z2JH, NEEDED], ids=["z2jh", "needed"])
async def test_the_hub_does_all_it_does_with(
    corner: Corner, hub: client.ApiClient, life: Life, verbs: set[Verb]
) -> None:
    await grant(corner, SUBJECT, hub, verbs)
    await life.live()


@pytest.mark.parametrize("removed", sorted(NEEDED), ids=lambda verb: "-".join(verb))
async def test_each_verb_that_is_needed_is_missed(
    corner: Corner,
    hub: client.ApiClient,
    life: Life,
    caplog: pytest.LogCaptureFixture,
    removed: Verb,
) -> None:
    await grant(corner, SUBJECT, hub, Z2JH - {removed})
    caplog.set_level(logging.WARNING)
    missed = ""
    try:
        async with asyncio.timeout(30):
            await life.live()
    except (client.ApiException, AssertionError, OSError) as error:  # TimeoutError is an OSError
        missed = f"{error!r} {error}"
    # Without a watch KubeSpawner lists again and again, ever more slowly, and gives up after a minute.
    assert missed or ("watch" in removed and "Error when watching" in caplog.text), caplog.text
    assert "403" in f"{missed} {caplog.text}"


async def test_nothing_outside_is_allowed(corner: Corner, hub: client.ApiClient) -> None:
    assert NEEDED < Z2JH
    await grant(corner, SUBJECT, hub, Z2JH)
    assert await told_verbs(hub, corner.namespace) == Z2JH
    core: Any = client.CoreV1Api(hub)
    for attempt in (
        core.list_node(),
        core.patch_namespaced_pod("server", corner.namespace, {}),
        core.list_namespaced_pod("kube-system"),
        core.create_namespaced_event(corner.namespace, {"metadata": {"name": "one"}, "involvedObject": {}}),
        core.create_namespaced_config_map(corner.namespace, {"metadata": {"name": "one"}}),
        client.ResourceV1Api(hub).list_namespaced_resource_claim(corner.namespace),
        client.RbacAuthorizationV1Api(hub).list_namespaced_role(corner.namespace),
    ):
        with pytest.raises(client.ApiException) as refused:
            await attempt
        assert refused.value.status == 403
