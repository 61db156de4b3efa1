"""What a pod already says, by a profile, a setting or a hook, against the lease it is to have. Pure: JSON in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.container import VISIBLE, VOID
from mig_spawner.spawner.injection.base import Device, Injection, Manifest, containers_of, env_of

HOSTNAME: Final = "kubernetes.io/hostname"
LEASE_LABEL: Final = "mig-spawner/lease"
"""The label by which a pod says which lease it lives on; allocator and agents look for it."""

_NVIDIA: Final = "nvidia.com/"


def nvidia_resources(names: Iterable[str]) -> list[str]:
    """Those of these resources that a device plugin of NVIDIA's gives out."""
    return sorted({name for name in names if name.startswith(_NVIDIA)})


def asked_of_plugin(container: Manifest) -> list[str]:
    """What a container asks of NVIDIA's device plugin by itself."""
    resources = container.get("resources") or {}
    return nvidia_resources([*(resources.get("limits") or {}), *(resources.get("requests") or {})])


def refuse_resources(names: list[str]) -> None:
    """See that a pod with a lease asks the device plugin for nothing by itself: it would get a second GPU, or another one.

    Raises:
        InvalidRequest: it does.
    """
    if names:
        raise InvalidRequest(
            f"The profile of this server asks for {', '.join(names)} by itself, and a slice was chosen beside it. "
            "A server has one GPU device: choose no GPU in the list of slices, or another profile."
        )


def refuse_conflicts(pod: Manifest, device: Device) -> None:
    """See that a pod as KubeSpawner made it can have this device.

    Raises:
        InvalidRequest: it asks for GPUs by itself, or cannot run on the node of the device.
    """
    refuse_resources(sorted({name for container in containers_of(pod) for name in asked_of_plugin(container)}))
    elsewhere = _bound_elsewhere(pod.get("spec") or {}, device.node)
    if elsewhere is not None:
        raise InvalidRequest(
            f"The profile of this server is bound to {elsewhere}, and the slice is on the node {device.node}. Choose another profile; "
            "an admin of this hub can keep profiles with slices free of host names."
        )


def changed(pod: Manifest, device: Device | None, lease_id: str | None, way: Injection) -> list[str]:
    """What a hook has broken in a pod that is about to be created; the admin's word holds, so this is for the log."""
    if not (pod.get("spec") or {}).get("containers"):
        return []
    if device is None:
        notebook = containers_of(pod)[0]
        seen = env_of(notebook).get(VISIBLE, "nothing")
        if seen == VOID or asked_of_plugin(notebook):
            return []
        return [f"{VISIBLE} says {seen} although the server has no lease, so it may see GPUs of others"]
    found = []
    if (pod["metadata"].get("labels") or {}).get(LEASE_LABEL) != lease_id:
        found.append(f"the label {LEASE_LABEL} is gone, so the allocator takes the pod for a stranger")
    if (pod["spec"].get("nodeSelector") or {}).get(HOSTNAME) != device.node:
        found.append(f"the pod is no longer bound to the node {device.node}, so it may find no device, or another one")
    if not way.holds(pod, device):
        found.append(f"it no longer names the device {device.uuid} as it should, so it may get none, or another one")
    return found


def _bound_elsewhere(spec: Manifest, node: str) -> str | None:
    """What keeps a pod from a node by its name; other labels of the node are not known here, so the scheduler judges those."""
    named = spec.get("nodeName") or (spec.get("nodeSelector") or {}).get(HOSTNAME)
    if named and named != node:
        return f"the node {named}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    # One of the terms has to hold, with all that it says.
    if terms and all(_excludes(term, node) for term in terms):
        return "other nodes by its node affinity"
    return None


def _excludes(term: Mapping[str, Any], node: str) -> bool:
    return any(
        (one["operator"] == "In" and node not in one.get("values", ()))
        or (one["operator"] == "NotIn" and node in one.get("values", ()))
        or one["operator"] == "DoesNotExist"
        for one in _about_the_name(term)
    )


def _about_the_name(term: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (e for e in term.get("matchExpressions") or [] if e.get("key") == HOSTNAME)
    yield from (f for f in term.get("matchFields") or [] if f.get("key") == "metadata.name")
