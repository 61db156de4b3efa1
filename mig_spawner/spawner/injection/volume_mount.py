"""`volume-mounts`: `/dev/null` of the node mounted where its name is the UUID; NVIDIA's runtime reads the name.

For nodes that accept no device list from the environment of unprivileged containers. It takes a hostPath volume, which an admission
policy can keep for pods of the hub: that is its point. Needs `accept-nvidia-visible-devices-as-volume-mounts = true` on the node.
"""

from __future__ import annotations

from typing import Final

from kubernetes_asyncio.client import V1Container, V1HostPathVolumeSource, V1Pod, V1Volume, V1VolumeMount

from mig_spawner.spawner.container import VISIBLE, VOID, without
from mig_spawner.spawner.injection.base import Device, Injection, Manifest, containers_of, env_of

ROOT: Final = "/var/run/nvidia-container-devices"
_VOLUME: Final = "mig-device"


class VolumeMountInjection(Injection):
    """A mount point as the name of the device. The variable says `void`, and the mount goes before it."""

    def edit(self, pod: V1Pod, notebook: V1Container, device: Device) -> None:
        """Add the volume and its mount."""
        nothing = V1HostPathVolumeSource(path="/dev/null", type="CharDevice")
        kept = without(pod.spec.volumes, "name", "name", _VOLUME)
        pod.spec.volumes = [*kept, V1Volume(name=_VOLUME, host_path=nothing)]
        kept = without(notebook.volume_mounts, "name", "name", _VOLUME)
        notebook.volume_mounts = [*kept, V1VolumeMount(name=_VOLUME, mount_path=f"{ROOT}/{device.uuid}")]

    def holds(self, pod: Manifest, device: Device) -> bool:
        """It has exactly this one mount below the root."""
        notebook = containers_of(pod)[0]
        named = [m["mountPath"] for m in notebook.get("volumeMounts") or [] if m["mountPath"].startswith(f"{ROOT}/")]
        return named == [f"{ROOT}/{device.uuid}"] and env_of(notebook).get(VISIBLE) == VOID
