"""What a profile, a setting or a hook says against a lease: refused with a sentence, or said in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes_asyncio.client import ApiException, V1Pod
from kubespawner import KubeSpawner

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner.container import as_json
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.injection import injector as injector_module
from mig_spawner.spawner.release import PodSlot

if TYPE_CHECKING:
    from tests.spawner.conftest import ScriptedAllocator

MakeSpawner = Callable[..., MIGSpawner]
HOST = "kubernetes.io/hostname"


async def manifest(spawner: MIGSpawner, choice: str = "small", **options: str) -> Any:
    """The pod as a start would make it, as JSON."""
    spawner.user_options = {"mig": choice, **options}
    await spawner.load_user_options()
    return as_json(await spawner.get_pod_manifest())


def env_of(pod: Any) -> dict[str, str]:
    return {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"]}


def term(*expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": how, "values": values} for key, how, values in expressions]}


# --- GPUs that a profile asks for by itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["extra_resource_limits", "extra_resource_guarantees"])
async def test_a_profile_that_asks_for_gpus_by_itself_is_refused_before_anybody_waits(
    make_spawner: MakeSpawner, allocator: ScriptedAllocator, where: str
) -> None:
    override = {where: {"nvidia.com/gpu": "1"}}
    spawner = make_spawner(profile_list=[{"display_name": "GPU", "slug": "gpu", "kubespawner_override": override}])
    with pytest.raises(SpawnRefused, match=r"asks for nvidia\.com/gpu by itself.*choose no GPU") as refused:
        await manifest(spawner, profile="gpu")
    assert refused.value.reason == Reason.INVALID.value
    assert allocator.paths("POST") == []


@pytest.mark.parametrize("kind", ["extra_containers", "init_containers"])
async def test_a_sidecar_that_asks_for_gpus_by_itself_is_refused(make_spawner: MakeSpawner, kind: str) -> None:
    sidecar = {"name": "x", "image": "y", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}
    with pytest.raises(SpawnRefused, match=r"asks for nvidia\.com/mig-1g\.10gb by itself"):
        await manifest(make_spawner(**{kind: [sidecar]}, injection="device-plugin"))


async def test_without_a_lease_such_a_profile_has_what_the_device_plugin_gives(make_spawner: MakeSpawner) -> None:
    plain = make_spawner(extra_resource_limits={"nvidia.com/gpu": "1"})
    pod = await manifest(plain, "none")
    assert "NVIDIA_VISIBLE_DEVICES" not in env_of(pod), "the pod's own value would win over the plugin's"
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


# --- nodes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traits", "sentence"),
    [
        ({"node_selector": {HOST: "cpu-a"}}, "bound to the node cpu-a"),
        ({"extra_pod_config": {"nodeName": "cpu-a"}}, "bound to the node cpu-a"),
        ({"node_affinity_required": [term((HOST, "In", ["cpu-a", "cpu-b"]))]}, "node affinity"),
        (
            {"node_affinity_required": [term((HOST, "NotIn", ["gpu-a"])), term((HOST, "DoesNotExist", []))]},
            "node affinity",
        ),
        (
            {
                "node_affinity_required": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
                ]
            },
            "node affinity",
        ),
    ],
    ids=["selector", "name", "affinity", "two terms", "field"],
)
async def test_a_profile_bound_to_another_node_is_refused(
    make_spawner: MakeSpawner, traits: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SpawnRefused, match=rf"{sentence}.*the slice is on the node gpu-a"):
        await manifest(make_spawner(**traits))


@pytest.mark.parametrize(
    "traits",
    [
        {"node_selector": {HOST: "gpu-a", "pool": "x"}},
        {"node_affinity_required": [term((HOST, "In", ["gpu-a", "gpu-b"]), ("pool", "In", ["x"]))]},
        {"node_affinity_required": [term((HOST, "In", ["cpu-a"])), term(("pool", "In", ["x"]))]},
        {"node_affinity_preferred": [{"weight": 1, "preference": term((HOST, "In", ["cpu-a"]))}]},
    ],
    ids=["same", "among others", "one term fits", "a wish"],
)
async def test_a_profile_that_may_be_on_the_node_is_not(make_spawner: MakeSpawner, traits: dict[str, Any]) -> None:
    pod = await manifest(make_spawner(**traits))
    assert pod["spec"]["nodeSelector"][HOST] == "gpu-a"


# --- variables and hooks ------------------------------------------------------------------------------------------------


async def test_a_list_of_variables_that_replaces_all_is_said(
    make_spawner: MakeSpawner, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    pod = await manifest(make_spawner(extra_container_config={"env": theirs}))
    assert env_of(pod)["NVIDIA_VISIBLE_DEVICES"] == "MIG-1111"
    assert "Use `environment` instead" in caplog.text
    caplog.clear()
    await manifest(make_spawner(extra_container_config={"tty": True}))
    assert "environment" not in caplog.text


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[V1Pod]:
    """The pods that KubeSpawner would have created."""
    pods: list[V1Pod] = []

    async def create(self: Any, pod: V1Pod, request_timeout: float) -> bool:
        pods.append(pod)
        return True

    monkeypatch.setattr(KubeSpawner, "_make_create_pod_request", create)
    return pods


@pytest.mark.parametrize("choice", ["small", "none"])
async def test_a_hook_has_the_last_word_and_what_it_breaks_is_said_once(
    make_spawner: MakeSpawner, created: list[V1Pod], choice: str, caplog: pytest.LogCaptureFixture
) -> None:
    spawner = make_spawner()
    spawner.user_options = {"mig": choice}
    await spawner.load_user_options()
    pod = await spawner.get_pod_manifest()
    await spawner._make_create_pod_request(pod, 1)
    assert "modify_pod_hook" not in caplog.text
    spawner._creation = type(spawner._creation).NONE
    for variable in pod.spec.containers[0].env:
        variable.value = "all"
    with caplog.at_level(logging.WARNING):
        await spawner._make_create_pod_request(pod, 1)
        await spawner._make_create_pod_request(pod, 1)
    assert caplog.text.count("probably by modify_pod_hook") == 1
    assert [p.spec.containers[0].env[0].value for p in created] == ["all"] * 3


# --- per profile --------------------------------------------------------------------------------------------------------


async def test_a_profile_may_have_a_way_of_its_own(make_spawner: MakeSpawner) -> None:
    profiles = [
        {"display_name": "Plain", "slug": "plain"},
        {"display_name": "Mounts", "slug": "mounts", "kubespawner_override": {"injection": "volume-mounts"}},
    ]
    for slug, visible in (("plain", "MIG-1111"), ("mounts", "void")):
        pod = await manifest(make_spawner(profile_list=profiles), profile=slug)
        assert env_of(pod)["NVIDIA_VISIBLE_DEVICES"] == visible
    broken = make_spawner(profile_list=[{"display_name": "X", "slug": "x", "kubespawner_override": {"injection": "?"}}])
    with pytest.raises(SpawnRefused):
        await manifest(broken, profile="x")


# --- what the cluster answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "reason", "sentence"),
    [
        (403, "forbidden", Reason.INVALID, "may not create resourceclaims.*hub-dra-role.yaml"),
        (403, "exceeded quota: gpus", Reason.QUOTA, "quota of this cluster"),
        (404, "no such thing", Reason.INVALID, "has no resourceclaims.*version v1"),
        (422, "invalid", None, ""),
    ],
)
async def test_a_claim_that_is_refused_fails_the_start_with_the_cause(
    make_spawner: MakeSpawner,
    created: list[V1Pod],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    reason: Reason | None,
    sentence: str,
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        error = ApiException(status=status)
        error.body = body.encode()
        raise error

    async def nothing(*_: Any, **__: Any) -> list[str]:
        return []

    monkeypatch.setattr(injector_module, "create", refuse)
    monkeypatch.setattr(injector_module, "missing_rights", nothing)
    spawner = make_spawner(injection="dra")
    spawner.user_options = {"mig": "small"}
    await spawner.load_user_options()
    pod = await spawner.get_pod_manifest()
    monkeypatch.setattr(PodSlot, "find", lambda _: asyncio.sleep(0, pod))
    if reason is None:
        with pytest.raises(ApiException):
            await spawner._make_create_pod_request(pod, 1)
        return
    with pytest.raises(SpawnRefused, match=sentence) as refused:
        await spawner._make_create_pod_request(pod, 1)
    assert refused.value.reason == reason.value
    assert len(created) == 1
