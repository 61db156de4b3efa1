"""From a lease and a menu entry to changes of one pod. Pure: the pod that is given changes, and nothing it shares with others.

KubeSpawner hands some of its traits (`node_selector`, `extra_pod_config` …) to the pod as they are, so every list and mapping is
replaced by a new one and never written into. A GPU limit that stuck to the next server would be the price otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubernetes_asyncio.client import (
    V1Container,
    V1EmptyDirVolumeSource,
    V1Pod,
    V1ResourceRequirements,
    V1Toleration,
    V1Volume,
    V1VolumeMount,
)

from mig_spawner.spawner.container import (
    VISIBLE,
    VOID,
    as_json,
    drop_env,
    env_name,
    notebook_of,
    resources_of,
    set_env,
    without,
)
from mig_spawner.spawner.hint import hint_env
from mig_spawner.spawner.injection.base import Device, Injection, containers_of
from mig_spawner.spawner.injection.conflict import HOSTNAME, LEASE_LABEL, asked_of_plugin, refuse_conflicts
from mig_spawner.spawner.injection.env import EnvInjection
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.menu import MenuEntry

_SHM_VOLUME: Final = "mig-shm"
_SHM_PATH: Final = "/dev/shm"  # noqa: S108  the path inside the container
_TAINT: Final = "nvidia.com/gpu"


_ENV: Final = EnvInjection()


def gpu_env(lease: LeaseDocument | None, way: Injection = _ENV) -> dict[str, str]:
    """The variables of the notebook. Without a lease the NVIDIA runtime is told to show no GPU at all.

    `GPU_MEM_LIMIT` is in bytes. A whole GPU has no MIG profile and no MIG device, so neither is named; nor is a device that is only
    known once the pod runs.
    """
    device = Device.of(lease)
    if lease is None or device is None:
        return {VISIBLE: VOID}
    visible = way.visible(device)
    env = {} if visible is None else {VISIBLE: visible}
    env |= {"MIG_LEASE_ID": device.lease_id, "GPU_MEM_LIMIT": str(lease.memory_bytes)}
    if device.profile is not None:
        env["MIG_PROFILE"] = device.profile
        if way.tells_device:
            env["MIG_DEVICE_UUID"] = device.uuid
    return env


def edit_pod(
    pod: V1Pod, lease: LeaseDocument | None, entry: MenuEntry | None, *, runtime_class: str, way: Injection = _ENV
) -> V1Pod:
    """Make a pod that KubeSpawner built one that has exactly what was leased.

    Args:
        lease: Ready or Active; None for a server without a GPU.
        entry: what was chosen, for the host's limits and hints.
        runtime_class: of pods with a lease; empty to leave it as it is.
        way: how the device gets into the pod.

    Raises:
        InvalidRequest: the pod already says something that contradicts the lease, or this device cannot go this way.
    """
    spec = pod.spec
    notebook = notebook_of(pod)
    device = Device.of(lease)
    manifest = as_json(pod)
    if device is not None:
        way.check(device)
        refuse_conflicts(manifest, device)
    _tell(pod, gpu_env(lease, way), manifest)
    if entry is not None:
        _limit(notebook, entry)
        if entry.shm is not None:
            _mount_shm(pod, notebook, entry.shm)
    if lease is not None and device is not None:
        if entry is not None:
            present = {env_name(variable) for variable in notebook.env or []}
            set_env(notebook, hint_env(entry.hints, present, cut=device.profile is not None))
        way.edit(pod, notebook, device)
        if runtime_class and way.needs_runtime_class:
            spec.runtime_class_name = runtime_class
        spec.node_selector = {**(spec.node_selector or {}), HOSTNAME: device.node}
        # GPU nodes are usually tainted to keep other pods away; who has a lease there may go there.
        spec.tolerations = [*(spec.tolerations or []), V1Toleration(key=_TAINT, operator="Exists")]
        pod.metadata.labels = {**(pod.metadata.labels or {}), LEASE_LABEL: lease.lease_id}
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), **_annotations(lease, way)}
    return pod


def _tell(pod: V1Pod, env: Mapping[str, str], manifest: Mapping[str, Any]) -> None:
    """Say in every container which GPUs it sees: the notebook what `env` says, the others none unless they say so themselves.

    A container that asks NVIDIA's device plugin by itself gets the variable from there, and its own would win over that.
    """
    notebook = notebook_of(pod)
    asking = {c["name"] for c in containers_of(manifest) if asked_of_plugin(c)}
    for container in [*pod.spec.containers, *(pod.spec.init_containers or [])]:
        if container is notebook:
            drop_env(container, VISIBLE)
        if container.name in asking:
            continue
        if container is notebook:
            set_env(container, env)
        else:
            set_env(container, {VISIBLE: VOID}, only_missing=True)


def lease_of(labels: Mapping[str, str] | None) -> str | None:
    """The lease that a pod with these labels lives on."""
    return (labels or {}).get(LEASE_LABEL) or None


def _annotations(lease: LeaseDocument, way: Injection) -> dict[str, str]:
    """Everything from which an allocator that has lost its ledger can write the lease down again."""
    placement = lease.placement
    if placement is None:
        return {}
    return {
        "mig-spawner/lease": lease.lease_id,
        "mig-spawner/generation": str(placement.generation),
        "mig-spawner/profile": placement.profile or "",
        "mig-spawner/device-uuid": lease.device_uuid or "",
        "mig-spawner/gpu-uuid": placement.gpu_uuid,
        "mig-spawner/placement": f"{placement.start}:{placement.size}",
        "mig-spawner/cut": str(placement.cut).lower(),
        "mig-spawner/picked-by-node": str(not way.tells_device).lower(),
        "mig-spawner/granted-at": placement.granted_at.isoformat(),
        "mig-spawner/expires-at": "" if placement.expires_at is None else placement.expires_at.isoformat(),
        "mig-spawner/user-id": lease.holder.user_id,
        "mig-spawner/user-name": lease.holder.user_name,
        "mig-spawner/server-name": lease.holder.server_name,
    }


def _limit(container: V1Container, entry: MenuEntry) -> None:
    resources = resources_of(container)
    limits: dict[str, Any] = dict(resources.limits or {})
    requests: dict[str, Any] = dict(resources.requests or {})
    for kind, limit, guarantee in (
        ("cpu", entry.cpu_limit, entry.cpu_guarantee),
        ("memory", entry.mem_limit, entry.mem_guarantee),
    ):
        if limit is not None:
            limits[kind] = limit
            if guarantee is None and _more(requests.get(kind), limit):
                requests[kind] = limit
        if guarantee is not None:
            requests[kind] = guarantee
            if limit is None and _more(guarantee, limits.get(kind)):
                limits[kind] = guarantee
    container.resources = V1ResourceRequirements(claims=resources.claims, limits=limits, requests=requests)


def _more(one: object, other: object) -> bool:
    """One number is greater than another; what is no number (an admin's `500m`) is left to Kubernetes to judge."""
    return isinstance(one, int | float) and isinstance(other, int | float) and one > other


def _mount_shm(pod: V1Pod, container: V1Container, size: int) -> None:
    """A `/dev/shm` of this many bytes. It is memory, and counts within the container's limit."""
    volume = V1Volume(name=_SHM_VOLUME, empty_dir=V1EmptyDirVolumeSource(medium="Memory", size_limit=str(size)))
    mount = V1VolumeMount(name=_SHM_VOLUME, mount_path=_SHM_PATH)
    pod.spec.volumes = [*without(pod.spec.volumes, "name", "name", _SHM_VOLUME), volume]
    container.volume_mounts = [*without(container.volume_mounts, "mount_path", "mountPath", _SHM_PATH), mount]
