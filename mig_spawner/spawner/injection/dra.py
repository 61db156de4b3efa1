"""`dra`: a ResourceClaim whose selector names the leased UUID. The scheduler allocates exactly that device, or the pod waits.

NVIDIA's DRA driver publishes what it saw when it started, with UUIDs only for devices that stand already. The claim is created once
the pod is there and is owned by it, so that it goes with the pod, whatever happens to the hub in between.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, ClassVar, Final

from kubernetes_asyncio.client import V1Container, V1Pod, V1ResourceRequirements

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.container import VISIBLE, VOID, resources_of, without
from mig_spawner.spawner.injection.base import (
    Companion,
    Device,
    Injection,
    Manifest,
    Right,
    containers_of,
    env_of,
)

GROUP: Final = "resource.k8s.io"
VERSION: Final = "v1"
DRIVER: Final = "gpu.nvidia.com"
_REQUEST: Final = "mig"
_CLASS: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


class DRAInjection(Injection):
    """A claim for one device.

    Args:
        device_class: of MIG devices.
        whole_device_class: of GPUs that are not cut.

    Raises:
        InvalidRequest: no class can be called so.
    """

    needs_runtime_class: ClassVar[bool] = False
    rights: ClassVar[tuple[Right, ...]] = (Right(GROUP, "resourceclaims", ("create",)),)
    fix: ClassVar[str] = "kubectl apply -f hub_config/kubernetes/hub-dra-role.yaml, in the namespace of the servers"

    def __init__(self, device_class: str, whole_device_class: str) -> None:
        for name in (device_class, whole_device_class):
            if not _CLASS.fullmatch(name):
                raise InvalidRequest(f"A device class has a name such as mig.nvidia.com, not {name!r}.")
        self._classes = {False: device_class, True: whole_device_class}

    def check(self, device: Device) -> None:
        """The device stands by itself."""
        if device.cut:
            raise InvalidRequest(
                f"The slice on {device.node} was cut on demand, and the DRA driver publishes no device that it did not find "
                "when it started. Please tell an admin: with this injection the agents run with --mode=static."
            )

    def edit(self, pod: V1Pod, notebook: V1Container, device: Device) -> None:
        """Refer to a claim of this pod's own: one that an earlier pod of the same lease left would be held by this one, and never go."""
        claim: Any = {"name": _REQUEST, "resourceClaimName": f"mig-{device.lease_id}-{secrets.token_hex(4)}"}
        pod.spec.resource_claims = [*without(pod.spec.resource_claims, "name", "name", _REQUEST), claim]
        asked = resources_of(notebook)
        claims = [*without(asked.claims, "name", "name", _REQUEST), {"name": _REQUEST}]
        notebook.resources = V1ResourceRequirements(claims=claims, limits=asked.limits, requests=asked.requests)

    def beside(self, pod: Manifest, device: Device) -> tuple[Companion, ...]:
        """The claim, if the pod still refers to it."""
        name = _claim_name(pod)
        if name is None:
            return ()
        selected = {"cel": {"expression": f"device.attributes['{DRIVER}'].uuid == '{device.uuid}'"}}
        exactly: dict[str, Any] = {
            "deviceClassName": self._classes[device.profile is None],
            "allocationMode": "ExactCount",
            "count": 1,
            "selectors": [selected],
        }
        manifest = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": _REQUEST, "exactly": exactly}]}},
        }
        return (Companion(GROUP, VERSION, "resourceclaims", manifest),)

    def holds(self, pod: Manifest, device: Device) -> bool:
        """Pod and container refer to the claim, and the runtime is told to add nothing of its own."""
        del device  # its UUID is in the claim, which no hook sees
        notebook = containers_of(pod)[0]
        used = {c["name"] for c in (notebook.get("resources") or {}).get("claims") or []}
        told = env_of(notebook).get(VISIBLE)
        return _claim_name(pod) is not None and _REQUEST in used and told == VOID


def _claim_name(pod: Manifest) -> str | None:
    """Of the claim that a pod refers to as ours."""
    for claim in pod["spec"].get("resourceClaims") or []:
        if claim["name"] == _REQUEST:
            return str(claim.get("resourceClaimName"))
    return None
