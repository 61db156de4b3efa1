"""Events: what the kubelet and the scheduler tell about a pod. The hub's progress page lives from them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from mig_spawner.testing.kube.defaults import timestamp
from mig_spawner.testing.kube.kubelet.client import ApiError, KubeClient
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)


class Recorder:
    """Writes events. An event that cannot be written is lost, as in a real cluster."""

    def __init__(self, client: KubeClient, component: str) -> None:
        self._client = client
        self._component = component

    async def record(self, pod: Manifest, reason: str, message: str, *, is_warning: bool = False) -> None:
        """An event about a pod."""
        metadata, now = pod["metadata"], timestamp()
        suffix = f"{int(datetime.now(UTC).timestamp() * 1e6):x}"
        event: Manifest = {
            "metadata": {"name": f"{metadata['name']}.{suffix}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": message,
            "source": {"component": self._component, "host": pod["spec"].get("nodeName", "")},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "eventTime": None,
            "count": 1,
            "reportingComponent": self._component,
            "reportingInstance": pod["spec"].get("nodeName", ""),
        }
        try:
            await self._client.create(f"/api/v1/namespaces/{metadata['namespace']}/events", event)
        except ApiError as error:
            _log.debug("event %s about %s is lost: %s", reason, metadata["name"], error)
