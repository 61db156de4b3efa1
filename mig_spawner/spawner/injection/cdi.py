"""`cdi`: an annotation names a device of the Container Device Interface, and the container runtime looks it up in its specification.

The runtime has to hand annotations of the pod to CDI, and the specification on the node has to name the device: one that is only made
anew when somebody restarts a service is stale as soon as a device is cut on demand, and the container then fails to start.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import Final

from kubernetes_asyncio.client import V1Container, V1Pod

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.container import VISIBLE, VOID
from mig_spawner.spawner.injection.base import Device, Injection, Manifest, containers_of, env_of

FIELDS: Final = ("uuid", "gpu_uuid", "profile", "start", "size")
"""What a pattern may refer to."""

_KEY: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_QUALIFIED: Final = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?"
)
_EXAMPLE: Final = Device("x", "MIG-1", "node", "GPU-1", "1g.10gb", 0, 1, cut=False)


class CDIInjection(Injection):
    """An annotation of the pod.

    Args:
        annotation: its key, such as `cdi.k8s.io/mig-spawner`.
        device: kind and name, such as `nvidia.com/gpu={uuid}`, with any of `FIELDS` in braces.

    Raises:
        InvalidRequest: one of them cannot be used.
    """

    def __init__(self, annotation: str, device: str) -> None:
        if not _KEY.fullmatch(annotation):
            raise InvalidRequest(
                f"A CDI annotation is a prefix and a name such as cdi.k8s.io/mig-spawner, not {annotation!r}."
            )
        self._annotation = annotation
        self._pattern = device
        self._name(_EXAMPLE)

    def _name(self, device: Device) -> str:
        values = {field: getattr(device, field) for field in FIELDS}
        try:
            if any(spec or conversion for _, _, spec, conversion in Formatter().parse(self._pattern)):
                raise ValueError("a format")
            name = self._pattern.format_map(values)
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            known = ", ".join(f"{{{field}}}" for field in FIELDS)
            raise InvalidRequest(
                f"The CDI device {self._pattern!r} cannot be read ({error}); it may refer to {known}."
            ) from error
        if not _QUALIFIED.fullmatch(name):
            raise InvalidRequest(f"A CDI device is vendor/class=name such as nvidia.com/gpu={{uuid}}, not {name!r}.")
        return name

    def check(self, device: Device) -> None:
        """The name has to be one that CDI allows."""
        self._name(device)

    def edit(self, pod: V1Pod, notebook: V1Container, device: Device) -> None:
        """Annotate the pod."""
        del notebook
        pod.metadata.annotations = {**(pod.metadata.annotations or {}), self._annotation: self._name(device)}

    def holds(self, pod: Manifest, device: Device) -> bool:
        """The annotation names the device, and the variable does not do so as well."""
        annotations = pod["metadata"].get("annotations") or {}
        told = env_of(containers_of(pod)[0]).get(VISIBLE)
        return annotations.get(self._annotation) == self._name(device) and told == VOID
