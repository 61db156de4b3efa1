"""Nodes: what they have, that they are there, and that they live."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

from mig_spawner.testing.kube.defaults import timestamp
from mig_spawner.testing.kube.kubelet.addresses import HOST_ADDRESS
from mig_spawner.testing.kube.kubelet.client import ApiError, KubeClient
from mig_spawner.testing.kube.patches import STRATEGIC_PATCH
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)

_HEARTBEAT_S = 10.0
_USUAL_CAPACITY = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
_LIFE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True)
class NodeSpec:
    """A node to play. `capacity` is added to, and wins over, 16 CPUs, 64Gi of memory, 100Gi of disk and 110 pods, for
    example `{"nvidia.com/mig-1g.10gb": "2"}`; `labels` to its hostname, operating system and architecture."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)

    @property
    def allocatable(self) -> dict[str, str]:
        """All that pods may ask for, as quantities."""
        return {**_USUAL_CAPACITY, **self.capacity}

    def manifest(self) -> Manifest:
        """The node as it is registered."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "arm64" if platform.machine() in {"arm64", "aarch64"} else "amd64",
            **self.labels,
        }
        return {"metadata": {"name": self.name, "labels": labels}, "status": self._status()}

    def _status(self) -> Manifest:
        facts = {
            "machineID": self.name,
            "systemUUID": self.name,
            "bootID": self.name,
            "kernelVersion": platform.release() or "unknown",
            "osImage": platform.system() or "unknown",
            "containerRuntimeVersion": "local://1",
            "kubeletVersion": "v1.30.0+embedded",
            "kubeProxyVersion": "v1.30.0+embedded",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }
        return {
            "capacity": self.allocatable,
            "allocatable": self.allocatable,
            "addresses": [
                {"type": "InternalIP", "address": HOST_ADDRESS},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": facts,
            "conditions": [_ready(is_new=True)],
        }


def _stopped() -> Manifest:
    changed = {"status": "False", "reason": "KubeletStopped", "message": "the embedded kubelet has stopped"}
    return {**_ready(is_new=True), **changed}


def _ready(*, is_new: bool) -> Manifest:
    now = timestamp()
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the embedded kubelet is posting ready status",
        "lastHeartbeatTime": now,
    }
    return {**condition, "lastTransitionTime": now} if is_new else condition


async def register(client: KubeClient, spec: NodeSpec) -> None:
    """Makes the node, or takes over one that is there. Raises `ApiError`."""
    manifest = spec.manifest()
    try:
        await client.create("/api/v1/nodes", manifest)
    except ApiError as error:
        if error.code != 409:
            raise
        labels = {"metadata": {"labels": manifest["metadata"]["labels"]}}
        await client.patch(f"/api/v1/nodes/{spec.name}", labels)
    await client.patch(f"/api/v1/nodes/{spec.name}/status", {"status": manifest["status"]}, STRATEGIC_PATCH)
    await _clear_taints(client, spec.name)


async def keep_alive(client: KubeClient, spec: NodeSpec) -> None:
    """Says every ten seconds, for ever, that the node lives. A node that somebody deleted stays deleted."""
    while True:
        await asyncio.sleep(_HEARTBEAT_S)
        try:
            beat = {"status": {"conditions": [_ready(is_new=False)]}}
            await client.patch(f"/api/v1/nodes/{spec.name}/status", beat, STRATEGIC_PATCH)
            await _clear_taints(client, spec.name)
        except ApiError as error:
            _log.debug("node %s could not be told to live: %s", spec.name, error)


async def sign_off(client: KubeClient, spec: NodeSpec) -> None:
    """Says that the node takes no more pods; not heard when the API is gone already."""
    try:
        body = {"status": {"conditions": [_stopped()]}}
        await client.patch(f"/api/v1/nodes/{spec.name}/status", body, STRATEGIC_PATCH)
    except ApiError as error:
        _log.debug("node %s could not sign off: %s", spec.name, error)


async def _clear_taints(client: KubeClient, name: str) -> None:
    """A real cluster marks silent nodes; those marks are ours to lift, others are an admin's."""
    node = await client.get(f"/api/v1/nodes/{name}")
    taints = (node.get("spec") or {}).get("taints") or []
    kept = [taint for taint in taints if taint.get("key") not in _LIFE_TAINTS]
    if len(kept) < len(taints):
        await client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": kept or None}})
