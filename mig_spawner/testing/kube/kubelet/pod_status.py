"""The status of a pod at each turn of its life, as patches. Each names the pod's uid, so that a new pod of the same name
is never meant, and is complete, since KubeSpawner reads `podIP` and `containerStatuses` as soon as a pod is Running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mig_spawner.testing.kube.defaults import timestamp
from mig_spawner.testing.kube.kubelet.addresses import HOST_ADDRESS
from mig_spawner.testing.kube.resources import Manifest

KILLED = 137
NOT_STARTED = 128


def main_container(pod: Manifest) -> Manifest:
    """The container that is run: `notebook`, as KubeSpawner calls it, or the first."""
    containers: list[Manifest] = pod["spec"]["containers"]
    return next((container for container in containers if container["name"] == "notebook"), containers[0])


def given_by_plugins(pod: Manifest, environment: Mapping[str, str]) -> list[Manifest]:
    """What a kubelet of 1.36 writes of the device that NVIDIA's plugin names in the environment, if the container asked for one."""
    device = environment.get("NVIDIA_VISIBLE_DEVICES")
    limits: Manifest = (main_container(pod).get("resources") or {}).get("limits") or {}
    asked = [name for name in limits if name.startswith("nvidia.com/")]
    if device is None or not asked:
        return []
    return [{"name": asked[0], "resources": [{"resourceID": device, "health": "Healthy"}]}]


@dataclass
class ContainerHistory:
    """What happened to a pod's container so far. `given`: what device plugins gave it, by resource, as a status has it."""

    pod: Manifest
    address: str
    given: list[Manifest] = field(default_factory=list)
    pod_started_at: str = field(default_factory=timestamp)
    started_at: str = ""
    restarts: int = 0
    last_terminated: Manifest | None = None

    def running(self, pid: int) -> Manifest:
        self.started_at = timestamp()
        return self._patch("Running", {"running": {"startedAt": self.started_at}}, container_id=f"local://{pid}")

    def waiting(self, reason: str, message: str) -> Manifest:
        """The pod is Pending until its container ran once, then Running."""
        phase = "Running" if self.last_terminated else "Pending"
        return self._patch(phase, {"waiting": {"reason": reason, "message": message}})

    def terminated(self, code: int, reason: str = "", message: str = "") -> Manifest:
        """The end of the container and of the pod."""
        phase = "Succeeded" if code == 0 else "Failed"
        return self._patch(phase, {"terminated": self.note_exit(code, reason, message)})

    def note_exit(self, code: int, reason: str = "", message: str = "") -> Manifest:
        """Remembers the exit as the last one."""
        ended: Manifest = {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "startedAt": self.started_at or None,
            "finishedAt": timestamp(),
        }
        if code > NOT_STARTED:
            ended["signal"] = code - 128
        if message:
            ended["message"] = message
        self.last_terminated = ended
        return ended

    def _patch(self, phase: str, state: Manifest, container_id: str = "") -> Manifest:
        container = main_container(self.pod)
        is_running = "running" in state
        status: Manifest = {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"local://{container['image']}",
            "ready": is_running,
            "started": is_running,
            "restartCount": self.restarts,
            "state": {"running": None, "waiting": None, "terminated": None} | state,
        }
        status["state"] = {key: value for key, value in status["state"].items() if value is not None}
        if container_id:
            status["containerID"] = container_id
        if self.given:
            status["allocatedResourcesStatus"] = self.given
        if self.last_terminated and "terminated" not in state:
            status["lastState"] = {"terminated": self.last_terminated}
        return {
            "metadata": {"uid": self.pod["metadata"]["uid"]},
            "status": {
                "phase": phase,
                "hostIP": HOST_ADDRESS,
                "podIP": self.address,
                "podIPs": [{"ip": self.address}],
                "startTime": self.pod_started_at,
                "conditions": _conditions(is_running, phase),
                "containerStatuses": [status],
            },
        }


def _conditions(is_running: bool, phase: str) -> list[Manifest]:
    now = timestamp()
    reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    ready: Manifest = {"status": "True"} if is_running else {"status": "False", "reason": reason}
    return [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
        {"type": "Initialized", "status": "True", "lastTransitionTime": now},
        {"type": "ContainersReady", **ready, "lastTransitionTime": now},
        {"type": "Ready", **ready, "lastTransitionTime": now},
    ]
