"""The port: how the device of a lease gets into the notebook's container.

A way changes the manifest of one pod before it is created, and may want something created beside it. Whatever the way, the pod is
pinned to the node of the lease, carries its label and annotations, and servers without a lease see no GPU.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kubernetes_asyncio.client import V1Container, V1Pod

from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.lease import LeaseDocument

Manifest = Mapping[str, Any]
"""Something of Kubernetes as JSON has it."""

_UUID: Final = re.compile(r"(?:MIG|GPU)-[A-Za-z0-9/-]{1,120}")
_LEASE_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,50}[a-z0-9])?")


@dataclass(frozen=True)
class Device:
    """What a lease says about its device.

    Attributes:
        profile: None for a whole GPU.
        cut: it was made for this lease, so nothing that looks at the GPUs only when it starts knows of it.
    """

    lease_id: str
    uuid: str
    node: str
    gpu_uuid: str
    profile: str | None
    start: int
    size: int
    cut: bool

    @classmethod
    def of(cls, lease: LeaseDocument | None) -> Device | None:
        """None unless there is a lease with a device.

        Raises:
            InvalidRequest: the allocator names something that is no UUID of a device, or no id that can be a label.
        """
        if lease is None or lease.placement is None or lease.device_uuid is None:
            return None
        if not _UUID.fullmatch(lease.device_uuid) or not _LEASE_ID.fullmatch(lease.lease_id):
            raise InvalidRequest(
                f"The allocator leased {lease.device_uuid[:60]!r} ({lease.lease_id[:60]!r}), which names no device of NVIDIA's. "
                "Please tell an admin of this hub."
            )
        placed = lease.placement
        return cls(
            lease_id=lease.lease_id,
            uuid=lease.device_uuid,
            node=placed.node,
            gpu_uuid=placed.gpu_uuid,
            profile=placed.profile,
            start=placed.start,
            size=placed.size,
            cut=placed.cut,
        )


@dataclass(frozen=True)
class Right:
    """What the hub's account must be allowed in the namespace of the servers, in the words of a Role."""

    group: str
    resource: str
    verbs: tuple[str, ...]


@dataclass(frozen=True)
class Companion:
    """Something to create beside the pod, which owns it, so that it goes when the pod goes."""

    group: str
    version: str
    plural: str
    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


class Injection(ABC):
    """One way.

    Attributes:
        needs_runtime_class: NVIDIA's runtime does the work, so the pod has to run in it.
        tells_device: the pod is made for one device by its UUID; otherwise somebody on the node picks one like it.
        rights: what it needs beyond what a KubeSpawner has.
        fix: how an admin grants the rights.
    """

    needs_runtime_class: ClassVar[bool] = True
    tells_device: ClassVar[bool] = True
    rights: ClassVar[tuple[Right, ...]] = ()
    fix: ClassVar[str] = ""

    def check(self, device: Device) -> None:
        """See that this device can go this way at all.

        Raises:
            InvalidRequest: it cannot; the sentence says what an admin has to change.
        """
        del device

    def visible(self, device: Device) -> str | None:
        """`NVIDIA_VISIBLE_DEVICES` of the notebook; None where somebody else sets it, and the pod's own value would win over theirs."""
        del device
        return "void"

    @abstractmethod
    def edit(self, pod: V1Pod, notebook: V1Container, device: Device) -> None:
        """Add to a pod what brings the device into its container `notebook`."""

    def beside(self, pod: Manifest, device: Device) -> tuple[Companion, ...]:
        """What has to be created once this pod is there. Its names are found in no other pod."""
        del pod, device
        return ()

    @abstractmethod
    def holds(self, pod: Manifest, device: Device) -> bool:
        """A pod as it is about to be created still has what `edit` added, and `NVIDIA_VISIBLE_DEVICES` says what it should."""

    def learned(self, pod: Manifest) -> str | None:
        """The device that a running pod was given by somebody else, once that can be known.

        Always None where the pod was made for one device: nothing else can be in it.
        """
        del pod
        return None


def containers_of(pod: Manifest) -> list[Manifest]:
    """All containers, the notebook's first, init containers last."""
    spec = pod.get("spec") or {}
    containers = sorted(spec.get("containers") or [], key=lambda c: c.get("name") != "notebook")
    return [*containers, *(spec.get("initContainers") or [])]


def env_of(container: Manifest) -> dict[str, str | None]:
    """The variables of a container that have a plain value; None for those that come from elsewhere. The last one counts."""
    return {v["name"]: v.get("value") for v in container.get("env") or []}
