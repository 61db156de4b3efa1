"""`device-plugin`: the pod asks for one MIG device of its profile, and the kubelet picks which.

The lease then stands for one device of its profile on its node; the pod is pinned there, and the numbers agree as long as everybody
who asks there has a lease. Which device it became is known afterwards, where the kubelet writes it into the pod's status (Kubernetes
1.36, `allocatedResourcesStatus`). Only for partitions that stand already: NVIDIA's plugin counts them when it starts.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from kubernetes_asyncio.client import V1Container, V1Pod, V1ResourceRequirements

from mig_spawner.domain.device_name import of_plugin
from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.container import VISIBLE, resources_of
from mig_spawner.spawner.injection.base import Device, Injection, Manifest, containers_of, env_of

_PREFIX: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9._-]*")


class DevicePluginInjection(Injection):
    """One of `nvidia.com/mig-1g.10gb`.

    Args:
        prefix: of the resources' names; the profile follows, with `.` for `+`. A whole GPU is `gpu` of the same domain.

    Raises:
        InvalidRequest: no resource can be called so.
    """

    tells_device: ClassVar[bool] = False

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidRequest(f"The names of resources begin with something like nvidia.com/mig-, not {prefix!r}.")
        self._prefix = prefix

    def resource(self, device: Device) -> str:
        """What the plugin calls devices like this one."""
        if device.profile is None:
            return f"{self._prefix.partition('/')[0]}/gpu"
        return f"{self._prefix}{device.profile.replace('+', '.')}"

    def check(self, device: Device) -> None:
        """The device stands by itself."""
        if device.cut:
            raise InvalidRequest(
                f"The slice on {device.node} was cut on demand, and a device plugin knows only what stood when it started. "
                "Please tell an admin: with this injection the agents run with --mode=static."
            )

    def visible(self, device: Device) -> None:
        """The plugin says it; what the pod says would win over that."""

    def edit(self, pod: V1Pod, notebook: V1Container, device: Device) -> None:
        """Ask for one."""
        del pod
        asked = resources_of(notebook)
        limits = {**(asked.limits or {}), self.resource(device): "1"}
        notebook.resources = V1ResourceRequirements(claims=asked.claims, limits=limits, requests=asked.requests)

    def holds(self, pod: Manifest, device: Device) -> bool:
        """It asks for one, and leaves the variable to the plugin."""
        notebook = containers_of(pod)[0]
        limits = (notebook.get("resources") or {}).get("limits") or {}
        return str(limits.get(self.resource(device))) == "1" and VISIBLE not in env_of(notebook)

    def learned(self, pod: Manifest) -> str | None:
        """What the kubelet says in the status that it gave; None if it says nothing, as before Kubernetes 1.36."""
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        for status in sorted(statuses, key=lambda s: s.get("name") != "notebook")[:1]:
            for resource in status.get("allocatedResourcesStatus") or []:
                for given in resource.get("resources") or []:
                    device = of_plugin(str(given.get("resourceID")))
                    if device is not None:
                        return device
        return None
