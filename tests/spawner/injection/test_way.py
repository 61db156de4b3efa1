"""What each way puts into a pod, and that a pod as it is about to be created still has it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from kubespawner.objects import make_pod
from traitlets import TraitError

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.container import as_json
from mig_spawner.spawner.injection.base import Device, Injection
from mig_spawner.spawner.injection.cdi import CDIInjection
from mig_spawner.spawner.injection.conflict import changed
from mig_spawner.spawner.injection.device_plugin import DevicePluginInjection
from mig_spawner.spawner.injection.dra import DRAInjection
from mig_spawner.spawner.injection.env import EnvInjection
from mig_spawner.spawner.injection.trait import WAYS, InjectionTraits
from mig_spawner.spawner.injection.volume_mount import VolumeMountInjection
from mig_spawner.spawner.pod import edit_pod
from mig_spawner.wire.lease import LeaseDocument

MakeLease = Callable[..., LeaseDocument]
UUID = "MIG-1111"
MOUNT = f"/var/run/nvidia-container-devices/{UUID}"
EXPRESSION = f"device.attributes['gpu.nvidia.com'].uuid == '{UUID}'"


def way_of(name: str) -> Injection:
    return InjectionTraits(injection=name).mig_injection


def pod_of(**changes: Any) -> Any:
    return make_pod(name="jupyter-ada", image="img", cmd=["start"], port=8888, image_pull_policy="Always", **changes)


def injected(name: str | Injection, lease: LeaseDocument | None, **changes: Any) -> Any:
    """The pod as JSON, as a spawner would create it."""
    way = way_of(name) if isinstance(name, str) else name
    return as_json(edit_pod(pod_of(**changes), lease, None, runtime_class="nvidia", way=way))


def env_of(pod: Any) -> dict[str, str]:
    return {e["name"]: e["value"] for e in pod["spec"]["containers"][0]["env"]}


def placed(lease: LeaseDocument, **changes: Any) -> LeaseDocument:
    assert lease.placement is not None
    return lease.model_copy(update={"placement": lease.placement.model_copy(update=changes)})


def device_of(lease: LeaseDocument) -> Device:
    device = Device.of(lease)
    assert device is not None
    return device


# --- the manifest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "visible", "mig_uuid", "runtime_class"),
    [
        ("env", UUID, UUID, "nvidia"),
        ("volume-mounts", "void", UUID, "nvidia"),
        ("cdi", "void", UUID, "nvidia"),
        ("device-plugin", None, None, "nvidia"),
        ("dra", "void", UUID, None),
    ],
)
def test_what_all_ways_have_in_common(
    lease: MakeLease, name: str, visible: str | None, mig_uuid: str | None, runtime_class: str | None
) -> None:
    pod = injected(name, lease(), env={"NVIDIA_VISIBLE_DEVICES": "all"})
    env = env_of(pod)
    assert (env.get("NVIDIA_VISIBLE_DEVICES"), env.get("MIG_DEVICE_UUID")) == (visible, mig_uuid)
    assert (env["MIG_PROFILE"], env["MIG_LEASE_ID"]) == ("1g.10gb", "lease-1")
    assert pod["spec"].get("runtimeClassName") == runtime_class
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "gpu-a"}
    assert pod["metadata"]["labels"]["mig-spawner/lease"] == "lease-1"
    assert pod["metadata"]["annotations"]["mig-spawner/device-uuid"] == UUID


@pytest.mark.parametrize("name", WAYS)
def test_no_way_touches_a_pod_without_a_lease(name: str) -> None:
    pod = injected(name, None)
    assert env_of(pod) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    expected = as_json(pod_of(env={"NVIDIA_VISIBLE_DEVICES": "void"}))
    assert pod == expected


def test_volume_mounts_show_the_runtime_a_name(lease: MakeLease) -> None:
    changes = {"volumes": [{"name": "home", "emptyDir": {}}], "volume_mounts": [{"name": "home", "mountPath": "/home"}]}
    pod = injected("volume-mounts", lease(), **changes)
    assert pod["spec"]["volumes"] == [
        {"name": "home", "emptyDir": {}},
        {"name": "mig-device", "hostPath": {"path": "/dev/null", "type": "CharDevice"}},
    ]
    mounts = {m["mountPath"]: m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"/home": "home", MOUNT: "mig-device"}


@pytest.mark.parametrize(
    ("annotation", "device", "key", "value"),
    [
        ("cdi.k8s.io/mig-spawner", "nvidia.com/gpu={uuid}", "cdi.k8s.io/mig-spawner", f"nvidia.com/gpu={UUID}"),
        (
            "nvidia.cdi.k8s.io/container.notebook",
            "mig-spawner.dev/mig={gpu_uuid}-{start}-{size}",
            "nvidia.cdi.k8s.io/container.notebook",
            "mig-spawner.dev/mig=GPU-1-2-1",
        ),
    ],
)
def test_cdi_annotates_the_pod(lease: MakeLease, annotation: str, device: str, key: str, value: str) -> None:
    pod = injected(CDIInjection(annotation, device), lease())
    assert pod["metadata"]["annotations"][key] == value


@pytest.mark.parametrize(
    ("profile", "resource"),
    [
        ("1g.10gb", "nvidia.com/mig-1g.10gb"),
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        (None, "nvidia.com/gpu"),
    ],
)
def test_the_device_plugin_is_asked_for_one(lease: MakeLease, profile: str | None, resource: str) -> None:
    uuid = UUID if profile else "GPU-1"
    changes = {"mem_limit": 8, "extra_resource_limits": {"x.com/y": "1"}}
    pod = injected("device-plugin", lease(profile=profile, device_uuid=uuid), **changes)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": 8, "x.com/y": "1", resource: "1"}


def test_a_claim_selects_the_leased_device(lease: MakeLease) -> None:
    pod = injected("dra", lease())
    [claim] = pod["spec"]["resourceClaims"]
    assert claim["name"] == "mig"
    assert claim["resourceClaimName"].startswith("mig-lease-1-")
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "mig"}]
    [companion] = way_of("dra").beside(pod, device_of(lease()))
    assert companion.name == claim["resourceClaimName"]
    [request] = companion.manifest["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"
    assert request["exactly"]["selectors"] == [{"cel": {"expression": EXPRESSION}}]


def test_every_pod_has_a_claim_of_its_own_and_none_if_a_hook_took_it_away(lease: MakeLease) -> None:
    first, second = injected("dra", lease()), injected("dra", lease())
    assert first["spec"]["resourceClaims"] != second["spec"]["resourceClaims"]
    del first["spec"]["resourceClaims"]
    assert way_of("dra").beside(first, device_of(lease())) == ()


def test_a_claim_for_a_whole_gpu_is_of_the_class_of_gpus(lease: MakeLease) -> None:
    whole = lease(profile=None, device_uuid="GPU-1")
    [companion] = way_of("dra").beside(injected("dra", whole), device_of(whole))
    assert companion.manifest["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.nvidia.com"


@pytest.mark.parametrize("name", ["env", "volume-mounts", "cdi", "device-plugin"])
def test_only_dra_needs_something_beside_the_pod_and_rights_for_it(lease: MakeLease, name: str) -> None:
    way = way_of(name)
    assert (way.beside(injected(name, lease()), device_of(lease())), way.rights) == ((), ())


# --- what cannot go -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "refused"),
    [("env", False), ("volume-mounts", False), ("cdi", False), ("device-plugin", True), ("dra", True)],
)
def test_a_slice_cut_on_demand_is_unknown_to_those_who_look_once(lease: MakeLease, name: str, refused: bool) -> None:
    cut = placed(lease(), cut=True)
    if not refused:
        injected(name, cut)
        return
    with pytest.raises(InvalidRequest, match=r"cut on demand.*--mode=static"):
        injected(name, cut)


@pytest.mark.parametrize("uuid", ["", "MIG-1' || true || '", "all", "MIG-../../etc", "GPU-1,GPU-2", "MIG-" + "1" * 200])
@pytest.mark.parametrize("name", WAYS)
def test_what_is_no_uuid_gets_into_no_pod(lease: MakeLease, name: str, uuid: str) -> None:
    with pytest.raises(InvalidRequest, match="tell an admin"):
        injected(name, lease(device_uuid=uuid))


def test_what_can_be_no_name_of_a_claim_gets_into_no_pod(lease: MakeLease) -> None:
    with pytest.raises(InvalidRequest, match="tell an admin"):
        injected("dra", lease(lease_id="a/b"))


@pytest.mark.parametrize(
    ("trait", "value"),
    [
        ("injection", "nvidia"),
        ("cdi_annotation", "mig-spawner"),
        ("cdi_annotation", "cdi.k8s.io/"),
        ("cdi_device", "nvidia.com/gpu"),
        ("cdi_device", "gpu={uuid}"),
        ("cdi_device", "nvidia.com/gpu={uuid} x"),
        ("cdi_device", "nvidia.com/gpu={user}"),
        ("cdi_device", "nvidia.com/gpu={uuid.__class__}"),
        ("cdi_device", "nvidia.com/gpu={uuid!r}"),
        ("cdi_device", "nvidia.com/gpu={uuid:>999999999}"),
        ("cdi_device", "nvidia.com/gpu={"),
        ("device_plugin_prefix", "mig-"),
        ("device_plugin_prefix", "Nvidia.com/mig-"),
        ("dra_device_class", "mig.nvidia.com'"),
        ("dra_whole_device_class", ""),
    ],
)
def test_a_setting_that_cannot_work_stops_the_hub(trait: str, value: str) -> None:
    with pytest.raises(TraitError):
        InjectionTraits(**{trait: value})


# --- hooks have the last word, and what they break is said ----------------------------------------------------------------


def broken(lease: MakeLease, name: str, breaking: Callable[[Any], object]) -> list[str]:
    pod = deepcopy(injected(name, lease()))
    assert changed(pod, device_of(lease()), "lease-1", way_of(name)) == []
    breaking(pod)
    return changed(pod, device_of(lease()), "lease-1", way_of(name))


def notebook(pod: Any) -> Any:
    return pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("name", "breaking"),
    [
        ("env", lambda pod: notebook(pod)["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})),
        ("env", lambda pod: notebook(pod).pop("env")),
        ("volume-mounts", lambda pod: notebook(pod).pop("volumeMounts")),
        (
            "volume-mounts",
            lambda pod: notebook(pod)["volumeMounts"].append({"name": "mig-device", "mountPath": MOUNT[:-1] + "2"}),
        ),
        ("cdi", lambda pod: pod["metadata"]["annotations"].pop("cdi.k8s.io/mig-spawner")),
        ("cdi", lambda pod: notebook(pod)["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-1"})),
        ("device-plugin", lambda pod: notebook(pod).pop("resources")),
        ("device-plugin", lambda pod: notebook(pod)["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})),
        ("dra", lambda pod: notebook(pod).pop("resources")),
        ("dra", lambda pod: pod["spec"].pop("resourceClaims")),
    ],
)
def test_a_device_that_a_hook_took_away_is_said(lease: MakeLease, name: str, breaking: Any) -> None:
    [sentence] = broken(lease, name, breaking)
    assert "no longer names the device MIG-1111" in sentence


def test_a_label_and_a_node_that_a_hook_took_away_are_said(lease: MakeLease) -> None:
    [sentence] = broken(lease, "env", lambda pod: pod["metadata"].pop("labels"))
    assert "takes the pod for a stranger" in sentence
    [sentence] = broken(lease, "env", lambda pod: pod["spec"].pop("nodeSelector"))
    assert "no longer bound to the node gpu-a" in sentence


@pytest.mark.parametrize(("seen", "count"), [("void", 0), ("all", 1), (None, 1)])
def test_a_server_without_a_lease_that_may_see_gpus_is_said(seen: str | None, count: int) -> None:
    pod = as_json(pod_of(env={} if seen is None else {"NVIDIA_VISIBLE_DEVICES": seen}))
    assert len(changed(pod, None, None, EnvInjection())) == count
    asking = as_json(pod_of(extra_resource_limits={"nvidia.com/gpu": "1"}))
    assert changed(asking, None, None, EnvInjection()) == []


# --- learning afterwards --------------------------------------------------------------------------------------------------


def running(*resources: tuple[str, str], container: str = "notebook") -> dict[str, Any]:
    given = [{"name": name, "resources": [{"resourceID": device, "health": "Healthy"}]} for name, device in resources]
    return {"status": {"containerStatuses": [{"name": container, "allocatedResourcesStatus": given}]}}


@pytest.mark.parametrize(
    ("pod", "device"),
    [
        (running(("nvidia.com/mig-1g.10gb", "MIG-2222")), "MIG-2222"),
        (running(("nvidia.com/mig-1g.10gb", "MIG-2222::3")), "MIG-2222"),
        (running(("nvidia.com/gpu", "GPU-2222")), "GPU-2222"),
        (running(("x.com/nic", "eth0"), ("nvidia.com/mig-1g.10gb", "MIG-2222")), "MIG-2222"),
        (running(("nvidia.com/mig-1g.10gb", "nvidia0/gi1")), None),
        (running(), None),
        ({"status": {"containerStatuses": [{"name": "notebook"}]}}, None),
        ({"status": {"phase": "Pending"}}, None),
        ({}, None),
    ],
)
def test_the_kubelet_says_which_device_it_gave(pod: dict[str, Any], device: str | None) -> None:
    assert DevicePluginInjection("nvidia.com/mig-").learned(pod) == device


def test_where_the_pod_is_made_for_one_device_nothing_is_left_to_learn() -> None:
    pod = running(("nvidia.com/mig-1g.10gb", "MIG-2222"))
    ways = [EnvInjection(), VolumeMountInjection(), way_of("cdi"), DRAInjection("a", "b")]
    assert [way.learned(pod) for way in ways] == [None] * 4
