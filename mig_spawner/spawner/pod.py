"""From a lease and a menu entry to changes of one pod. Pure: the pod that is given changes, and nothing it shares with others.

KubeSpawner hands some of its traits (`node_selector`, `extra_pod_config` …) to the pod as they are, so every list and mapping is
replaced by a new one and never written into. A GPU limit that stuck to the next server would be the price otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubernetes_asyncio.client import (
    V1Container,
    V1EmptyDirVolumeSource,
    V1EnvVar,
    V1Pod,
    V1ResourceRequirements,
    V1Toleration,
    V1Volume,
    V1VolumeMount,
)

from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.menu import MenuEntry

LEASE_LABEL: Final = "mig-spawner/lease"
"""The label by which a pod says which lease it lives on; allocator and agents look for it."""

_HOSTNAME: Final = "kubernetes.io/hostname"
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NOTEBOOK: Final = "notebook"
_SHM_VOLUME: Final = "mig-shm"
_SHM_PATH: Final = "/dev/shm"  # noqa: S108  the path inside the container
_TAINT: Final = "nvidia.com/gpu"


def gpu_env(lease: LeaseDocument | None) -> dict[str, str]:
    """The variables of the notebook. Without a lease the NVIDIA runtime is told to show no GPU at all.

    `GPU_MEM_LIMIT` is in bytes. A whole GPU has no MIG profile and no MIG device, so neither is named.
    """
    if lease is None or lease.placement is None or lease.device_uuid is None:
        return {_VISIBLE: "void"}
    env = {
        _VISIBLE: lease.device_uuid,
        "MIG_LEASE_ID": lease.lease_id,
        "GPU_MEM_LIMIT": str(lease.memory_bytes),
    }
    if lease.placement.profile is not None:
        env |= {"MIG_PROFILE": lease.placement.profile, "MIG_DEVICE_UUID": lease.device_uuid}
    return env


def edit_pod(pod: V1Pod, lease: LeaseDocument | None, entry: MenuEntry | None, *, runtime_class: str) -> V1Pod:
    """Make a pod that KubeSpawner built one that has exactly what was leased.

    Args:
        lease: Ready or Active; None for a server without a GPU.
        entry: what was chosen, for the host's limits.
        runtime_class: of pods with a lease; empty to leave it as it is.
    """
    spec = pod.spec
    notebook = next((c for c in spec.containers if c.name == _NOTEBOOK), spec.containers[0])
    _set_env(notebook, gpu_env(lease))
    for other in [*spec.containers, *(spec.init_containers or [])]:
        if other is not notebook:
            _set_env(other, {_VISIBLE: "void"}, only_missing=True)
    if entry is not None:
        _limit(notebook, entry)
        if entry.shm is not None:
            _mount_shm(pod, notebook, entry.shm)
    if lease is not None and lease.placement is not None:
        placement = lease.placement
        if runtime_class:
            spec.runtime_class_name = runtime_class
        spec.node_selector = {**(spec.node_selector or {}), _HOSTNAME: placement.node}
        # GPU nodes are usually tainted to keep other pods away; who has a lease there may go there.
        spec.tolerations = [*(spec.tolerations or []), V1Toleration(key=_TAINT, operator="Exists")]
        pod.metadata.labels = {**(pod.metadata.labels or {}), LEASE_LABEL: lease.lease_id}
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), **_annotations(lease)}
    return pod


def lease_of(labels: Mapping[str, str] | None) -> str | None:
    """The lease that a pod with these labels lives on."""
    return (labels or {}).get(LEASE_LABEL) or None


def _annotations(lease: LeaseDocument) -> dict[str, str]:
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
    }


def _set_env(container: V1Container, values: Mapping[str, str], *, only_missing: bool = False) -> None:
    """Say these variables once each, first, so that others may refer to them as `$(NAME)`.

    `extra_container_config` may have replaced the list, and then its items are plain mappings.
    """
    present = list(container.env or [])
    if only_missing:
        names = {_env_name(e) for e in present}
        values = {name: value for name, value in values.items() if name not in names}
    kept = [e for e in present if _env_name(e) not in values]
    container.env = [*(V1EnvVar(name=name, value=value) for name, value in values.items()), *kept]


def _env_name(variable: Any) -> str:
    name = variable.get("name") if isinstance(variable, Mapping) else variable.name
    return str(name)


def _limit(container: V1Container, entry: MenuEntry) -> None:
    resources = _resources(container.resources)
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


def _resources(resources: Any) -> V1ResourceRequirements:
    if isinstance(resources, Mapping):
        return V1ResourceRequirements(**{k: resources.get(k) for k in ("claims", "limits", "requests")})
    return resources if resources is not None else V1ResourceRequirements()


def _more(one: object, other: object) -> bool:
    """One number is greater than another; what is no number (an admin's `500m`) is left to Kubernetes to judge."""
    return isinstance(one, int | float) and isinstance(other, int | float) and one > other


def _mount_shm(pod: V1Pod, container: V1Container, size: int) -> None:
    """A `/dev/shm` of this many bytes. It is memory, and counts within the container's limit."""
    volume = V1Volume(name=_SHM_VOLUME, empty_dir=V1EmptyDirVolumeSource(medium="Memory", size_limit=str(size)))
    mount = V1VolumeMount(name=_SHM_VOLUME, mount_path=_SHM_PATH)
    pod.spec.volumes = [*_without(pod.spec.volumes, "name", "name", _SHM_VOLUME), volume]
    container.volume_mounts = [*_without(container.volume_mounts, "mount_path", "mountPath", _SHM_PATH), mount]


def _without(items: Iterable[Any] | None, attribute: str, key: str, value: str) -> list[Any]:
    return [i for i in items or [] if (i.get(key) if isinstance(i, Mapping) else getattr(i, attribute)) != value]
