"""The scheduler's loop: binds pods that wait to nodes that take them, and says why one has to wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from mig_spawner.testing.kube.defaults import timestamp
from mig_spawner.testing.kube.kubelet.client import ApiError, KubeClient, key_of, pod_path
from mig_spawner.testing.kube.kubelet.recorder import Recorder
from mig_spawner.testing.kube.kubelet.scheduling import Unschedulable, place
from mig_spawner.testing.kube.patches import STRATEGIC_PATCH
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 2.0


class Scheduler:
    """Highest priority first, then who came first. Looks again whenever something changed."""

    def __init__(
        self,
        client: KubeClient,
        pods: Mapping[str, Manifest],
        nodes: Mapping[str, Manifest],
        claims: Mapping[str, Manifest],
    ) -> None:
        """The mappings are live copies of what the server has."""
        self._client = client
        self._pods = pods
        self._nodes = nodes
        self._claims = claims
        self._recorder = Recorder(client, "default-scheduler")
        self._changed = asyncio.Event()
        self._bound: dict[str, Manifest] = {}  # by us, and not yet seen so in `pods`
        self._told: dict[str, str] = {}  # uid: the last message of FailedScheduling

    def wake(self) -> None:
        """Something changed: a pod waits, or there is room."""
        self._changed.set()

    async def run(self) -> None:
        """Schedules for ever."""
        while True:
            self._changed.clear()
            for pod in self._waiting():
                try:
                    await self._schedule(pod)
                except ApiError as error:
                    _log.debug("%s could not be scheduled: %s", key_of(pod), error)
                if self._changed.is_set():
                    break  # what changed meanwhile may be room, and the first in line gets it
            with contextlib.suppress(TimeoutError):
                # Not wait_for: before Python 3.12 it may swallow the cancellation that ends us.
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._changed.wait()

    def _waiting(self) -> list[Manifest]:
        pods = list(self._pods.values())
        seen = {pod["metadata"]["uid"] for pod in pods}
        bound = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        self._bound = {uid: pod for uid, pod in self._bound.items() if uid in seen - bound}
        self._told = {uid: message for uid, message in self._told.items() if uid in seen}
        waiting = [
            pod
            for pod in pods
            if not pod["spec"].get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") == "Pending"
            and pod["metadata"]["uid"] not in self._bound
        ]
        return sorted(
            waiting,
            key=lambda pod: (
                -pod["spec"].get("priority", 0),
                pod["metadata"]["creationTimestamp"],
                int(pod["metadata"]["resourceVersion"]),
            ),
        )

    async def _schedule(self, pod: Manifest) -> None:
        missing, unbound = self._claims_of(pod)
        if unbound and not missing:
            return  # the claim's volume is on its way, and its arrival wakes us
        everyone = [self._bound.get(other["metadata"]["uid"], other) for other in self._pods.values()]
        if missing:
            chosen: str | Unschedulable = Unschedulable(
                f'0/{len(self._nodes)} nodes are available: persistentvolumeclaim "{missing[0]}" not found.'
            )
        else:
            chosen = place(pod, list(self._nodes.values()), everyone)
        if isinstance(chosen, Unschedulable):
            await self._tell_why(pod, chosen.message)
            return
        metadata = pod["metadata"]
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "target": {"kind": "Node", "apiVersion": "v1", "name": chosen},
        }
        await self._client.create(pod_path(pod, "binding"), binding)
        self._bound[metadata["uid"]] = {**pod, "spec": {**pod["spec"], "nodeName": chosen}}
        await self._recorder.record(pod, "Scheduled", f"Successfully assigned {key_of(pod)} to {chosen}")

    def _claims_of(self, pod: Manifest) -> tuple[list[str], list[str]]:
        """The claims that the pod names and that are missing, or have no volume yet."""
        named = [
            (volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in pod["spec"].get("volumes") or []
        ]
        claims = {name: self._claims.get(f"{pod['metadata']['namespace']}/{name}") for name in named if name}
        missing = [name for name, claim in claims.items() if claim is None]
        unbound = [name for name, claim in claims.items() if claim and claim["status"].get("phase") != "Bound"]
        return missing, unbound

    async def _tell_why(self, pod: Manifest, message: str) -> None:
        uid = pod["metadata"]["uid"]
        if self._told.get(uid) == message:
            return
        self._told[uid] = message
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": timestamp(),
        }
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self._client.patch(pod_path(pod, "status"), patch, STRATEGIC_PATCH)
        await self._recorder.record(pod, "FailedScheduling", message, is_warning=True)
