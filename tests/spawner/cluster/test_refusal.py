"""What a real API server refuses, in words for the user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.testing.controlplane.run import HUB
from tests.cluster.right import HUB_RULES, grant, verbs_of
from tests.controlplane.corner import Corner, eventually

pytestmark = pytest.mark.controlplane

SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB.name}


async def test_a_runtime_class_that_is_not_there_is_a_sentence(
    corner: Corner, make_spawner: Callable[..., MIGSpawner]
) -> None:
    await grant(corner, SUBJECT, corner.hub, verbs_of(HUB_RULES))
    spawner = make_spawner(namespace=corner.namespace, nvidia_runtime_class="not-there", user_options={"mig": "small"})
    with pytest.raises(SpawnRefused, match=r"RuntimeClass.*nvidia_runtime_class") as refused:
        await spawner.start()
    assert refused.value.reason == Reason.CAPACITY.value
    await spawner.run_post_stop_hook()


async def test_a_quota_that_is_used_up_is_a_sentence(corner: Corner, make_spawner: Callable[..., MIGSpawner]) -> None:
    await grant(corner, SUBJECT, corner.hub, verbs_of(HUB_RULES))
    core, namespace = corner.core, corner.namespace
    await core.create_namespaced_resource_quota(
        namespace, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    )

    async def counted() -> bool:
        return bool((await core.read_namespaced_resource_quota("none", namespace)).status.used)

    await eventually(counted, "a count")
    spawner = make_spawner(namespace=namespace, nvidia_runtime_class="", user_options={"mig": "small"})
    with pytest.raises(SpawnRefused, match="quota of this cluster is used up") as refused:
        await spawner.start()
    assert refused.value.reason == Reason.QUOTA.value
    await spawner.run_post_stop_hook()
