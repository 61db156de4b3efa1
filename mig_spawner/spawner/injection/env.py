"""`env`: NVIDIA's runtime reads the UUID in `NVIDIA_VISIBLE_DEVICES` when the container starts.

Nothing can be stale, so this is the default. The node must accept the variable from unprivileged containers
(`accept-nvidia-visible-devices-envvar-when-unprivileged`, on unless somebody turned it off). Whoever may write pods can name any device.
"""

from __future__ import annotations

from kubernetes_asyncio.client import V1Container, V1Pod

from mig_spawner.spawner.container import VISIBLE
from mig_spawner.spawner.injection.base import Device, Injection, Manifest, containers_of, env_of


class EnvInjection(Injection):
    """The variable alone, which every pod of ours has."""

    def visible(self, device: Device) -> str:
        """The device itself."""
        return device.uuid

    def edit(self, pod: V1Pod, notebook: V1Container, device: Device) -> None:
        """Nothing: the variable is everything."""

    def holds(self, pod: Manifest, device: Device) -> bool:
        """The variable names the device."""
        return env_of(containers_of(pod)[0]).get(VISIBLE) == device.uuid
