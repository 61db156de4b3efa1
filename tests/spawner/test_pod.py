"""What a pod gets from a lease, and that nothing of it sticks to what pods share."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient, V1EmptyDirVolumeSource, V1Pod
from kubespawner.objects import make_pod

from mig_spawner.spawner.pod import edit_pod, gpu_env, lease_of
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.menu import Menu, MenuEntry

MakeLease = Callable[..., LeaseDocument]


def pod_of(**changes: Any) -> Any:
    return make_pod(name="jupyter-ada", image="img", cmd=["start"], port=8888, image_pull_policy="Always", **changes)


def entry_of(**fields: Any) -> MenuEntry:
    kind = {} if {"none", "whole", "min_memory"} & set(fields) else {"profile": "1g.10gb"}
    [entry] = Menu.parse([{"display_name": "x", **kind, **fields}])
    return entry


def env_of(pod: V1Pod, container: int = 0) -> dict[str, str | None]:
    names = [e["name"] if isinstance(e, dict) else e.name for e in pod.spec.containers[container].env]
    assert len(names) == len(set(names))
    return {
        name: e["value"] if isinstance(e, dict) else e.value
        for name, e in zip(names, pod.spec.containers[container].env, strict=True)
    }


def test_a_lease_names_its_device_and_nothing_else(lease: MakeLease) -> None:
    assert gpu_env(lease()) == {
        "NVIDIA_VISIBLE_DEVICES": "MIG-1111",
        "MIG_PROFILE": "1g.10gb",
        "MIG_DEVICE_UUID": "MIG-1111",
        "GPU_MEM_LIMIT": str(9728 * 1024 * 1024),
        "MIG_LEASE_ID": "lease-1",
    }


def test_a_whole_gpu_has_no_mig_device(lease: MakeLease) -> None:
    env = gpu_env(lease(profile=None, device_uuid="GPU-1"))
    assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert "MIG_PROFILE" not in env
    assert "MIG_DEVICE_UUID" not in env


@pytest.mark.parametrize("state", [None, "queued", "granted"])
def test_without_a_device_the_runtime_is_told_to_show_none(lease: MakeLease, state: str | None) -> None:
    assert gpu_env(None if state is None else lease(state)) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_leased_pod_is_pinned_labelled_and_described(lease: MakeLease) -> None:
    pod = edit_pod(pod_of(node_selector={"pool": "gpu"}), lease(), entry_of(), runtime_class="nvidia")
    assert pod.spec.runtime_class_name == "nvidia"
    assert pod.spec.node_selector == {"pool": "gpu", "kubernetes.io/hostname": "gpu-a"}
    assert [(t.key, t.operator) for t in pod.spec.tolerations] == [("nvidia.com/gpu", "Exists")]
    assert pod.metadata.labels["mig-spawner/lease"] == "lease-1"
    assert {k: v for k, v in pod.metadata.annotations.items() if k.startswith("mig-spawner/")} == {
        "mig-spawner/lease": "lease-1",
        "mig-spawner/generation": "5",
        "mig-spawner/profile": "1g.10gb",
        "mig-spawner/device-uuid": "MIG-1111",
        "mig-spawner/gpu-uuid": "GPU-1",
        "mig-spawner/placement": "2:1",
        "mig-spawner/picked-by-node": "false",
        "mig-spawner/cut": "false",
        "mig-spawner/granted-at": "2026-01-01T00:00:00+00:00",
        "mig-spawner/expires-at": "",
        "mig-spawner/user-id": "7",
        "mig-spawner/user-name": "ada",
        "mig-spawner/server-name": "",
    }
    assert lease_of(pod.metadata.labels) == "lease-1"


def test_a_pod_without_a_lease_is_only_told_to_see_no_gpu() -> None:
    plain = pod_of(env={"A": "b"}, node_selector={"pool": "cpu"})
    pod = edit_pod(deepcopy(plain), None, entry_of(none=True), runtime_class="nvidia")
    assert env_of(pod) == {"A": "b", "NVIDIA_VISIBLE_DEVICES": "void"}
    pod.spec.containers[0].env = plain.spec.containers[0].env
    assert pod.to_dict() == plain.to_dict()
    assert lease_of(pod.metadata.labels) is None


def test_no_runtime_class_where_none_is_wanted(lease: MakeLease) -> None:
    assert edit_pod(pod_of(), lease(), entry_of(), runtime_class="").spec.runtime_class_name is None


def test_our_variables_survive_an_env_list_of_the_admins(lease: MakeLease) -> None:
    theirs = [{"name": "THEIRS", "value": "$(MIG_PROFILE)"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    pod = pod_of(env={"X": "y"}, extra_container_config={"env": theirs})
    edit_pod(pod, lease(), entry_of(), runtime_class="nvidia")
    env = env_of(pod)
    assert env["NVIDIA_VISIBLE_DEVICES"] == "MIG-1111"
    assert env["THEIRS"] == "$(MIG_PROFILE)"
    assert list(env).index("MIG_PROFILE") < list(env).index("THEIRS")  # Kubernetes expands only what came before


def test_sidecars_and_init_containers_see_no_gpu_unless_they_say_so(lease: MakeLease) -> None:
    pod = pod_of(
        extra_containers=[
            {"name": "quiet", "image": "cuda"},
            {"name": "own", "image": "cuda", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-9"}]},
        ],
        init_containers=[{"name": "init", "image": "cuda"}],
    )
    edit_pod(pod, lease(), entry_of(), runtime_class="nvidia")
    assert env_of(pod, 1) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert env_of(pod, 2) == {"NVIDIA_VISIBLE_DEVICES": "GPU-9"}
    assert pod.spec.init_containers[0].env[0].value == "void"


@pytest.mark.parametrize(
    ("hub", "entry", "limits", "requests"),
    [
        ({}, {}, {}, {}),
        ({"mem_limit": 8, "cpu_limit": 2}, {}, {"memory": 8, "cpu": 2}, {}),
        ({"mem_limit": 8}, {"mem_limit": 4, "cpu_limit": 2}, {"memory": 4, "cpu": 2.0}, {}),
        ({"mem_guarantee": 8}, {"mem_limit": 4}, {"memory": 4}, {"memory": 4}),
        ({"mem_limit": 8}, {"mem_guarantee": 16}, {"memory": 16}, {"memory": 16}),
        ({"cpu_guarantee": 0.5}, {"cpu_limit": 2}, {"cpu": 2.0}, {"cpu": 0.5}),
        (
            {"extra_resource_limits": {"x.com/y": "1"}},
            {"mem_limit": 4},
            {"x.com/y": "1", "memory": 4},
            {},
        ),
    ],
)
def test_host_limits_are_the_entrys_word_over_the_hubs(
    lease: MakeLease, hub: dict[str, Any], entry: dict[str, Any], limits: dict[str, Any], requests: dict[str, Any]
) -> None:
    pod = edit_pod(pod_of(**hub), lease(), entry_of(**entry), runtime_class="nvidia")
    resources = pod.spec.containers[0].resources
    assert resources.limits == limits
    assert resources.requests == requests


def test_shm_is_memory_of_the_size_that_was_asked_and_replaces_another_mount(lease: MakeLease) -> None:
    pod = pod_of(
        volumes=[{"name": "old", "emptyDir": {}}],
        volume_mounts=[{"name": "old", "mountPath": "/dev/shm"}, {"name": "old", "mountPath": "/data"}],
    )
    edit_pod(pod, lease(), entry_of(shm="2G"), runtime_class="nvidia")
    mounts = {m.mount_path: m.name for m in pod.spec.containers[0].volume_mounts}
    assert mounts == {"/data": "old", "/dev/shm": "mig-shm"}
    [volume] = [v for v in pod.spec.volumes if v.name == "mig-shm"]
    assert volume.empty_dir == V1EmptyDirVolumeSource(medium="Memory", size_limit=str(2 << 30))


def test_nothing_that_pods_share_is_written_to(lease: MakeLease) -> None:
    shared: dict[str, Any] = {
        "node_selector": {"pool": "gpu"},
        "extra_container_config": {
            "env": [{"name": "A", "value": "b"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/dev/shm"}],
        },
        "extra_pod_config": {"tolerations": [{"key": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]},
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
    }
    before = deepcopy(shared)
    pod = edit_pod(pod_of(**shared), lease(), entry_of(shm="1G", mem_limit="2G"), runtime_class="nvidia")
    assert shared == before
    document = ApiClient.sanitize_for_serialization(_Serializer(), pod)
    assert document["spec"]["containers"][0]["resources"]["limits"]["memory"] == 2 << 30
    assert {"name": "A", "value": "b"} in document["spec"]["containers"][0]["env"]
    assert {"key": "a"} in document["spec"]["tolerations"]


class _Serializer(ApiClient):
    """The client's serialisation without a connection."""

    def __init__(self) -> None:
        pass
