"""Asking Kubernetes: list, then watch, then list again.

A list every few seconds costs the API server little for the handful of pods that have a GPU, and makes every listing complete
and of a known age, whatever happened to the connection in between.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from mig_spawner.allocator.claim import DEVICE, Claim, device_in, parse_claim
from mig_spawner.allocator.pods.base import LEASE_LABEL, PodListing, PodSighting
from mig_spawner.domain.device_name import of_plugin
from mig_spawner.errors import InvalidRequest

log = logging.getLogger(__name__)

IN_CLUSTER: Final = "in-cluster"
WATCH_S: Final = 10
RETRY_S: Final = 3
GONE: Final = 410
_ENDED: Final = ("Succeeded", "Failed")
_DEVICE_ENV: Final = "NVIDIA_VISIBLE_DEVICES"


class KubePods:
    """The pods of a cluster that carry a lease label.

    Args:
        kubeconfig: path of a kubeconfig, or `in-cluster` for the service account of the pod this runs in.
        namespace: the one to look at; empty for all, which needs a ClusterRole.
    """

    watches = True

    def __init__(self, kubeconfig: str, namespace: str, *, watch_s: int = WATCH_S, retry_s: float = RETRY_S) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._watch_s = watch_s
        self._retry_s = retry_s

    async def run(self, deliver: Callable[[PodListing], Awaitable[None]]) -> None:
        while True:
            try:
                async with await self._client() as api:
                    while True:
                        await self._round(client.CoreV1Api(api), deliver)
            except ApiException as error:
                # 410: the watch was to begin too far in the past. That is how a long cut ends, and no trouble.
                level = logging.INFO if error.status == GONE else logging.WARNING
                log.log(level, "Kubernetes does not show its pods now: %s %s", error.status, error.reason)
            except InvalidRequest as error:
                log.warning("%s", error)
            except Exception as error:
                log.warning("Kubernetes does not show its pods (%s: %s)", type(error).__name__, error)
            await asyncio.sleep(self._retry_s)

    async def _client(self) -> Any:
        configuration = client.Configuration()
        try:
            if self._kubeconfig == IN_CLUSTER:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(config_file=self._kubeconfig, client_configuration=configuration)
        except Exception as error:
            raise InvalidRequest(f"The kubeconfig {self._kubeconfig!r} cannot be used: {error}") from error
        return client.ApiClient(configuration)

    async def _round(self, api: Any, deliver: Callable[[PodListing], Awaitable[None]]) -> None:
        """One list and the changes of the next seconds."""
        begun = time.monotonic()
        call, arguments = self._call(api)
        listed = await call(**arguments, _request_timeout=self._watch_s + 5)
        pods: dict[str, Any] = {pod.metadata.uid: pod for pod in listed.items}
        gone: set[str] = set()
        await deliver(_listing(pods, gone, begun))
        async with watch.Watch() as stream:
            async for event in stream.stream(
                call,
                **arguments,
                resource_version=listed.metadata.resource_version,
                timeout_seconds=self._watch_s,
                _request_timeout=self._watch_s + 5,
            ):
                pod = event["object"]
                if event["type"] == "DELETED":
                    pods.pop(pod.metadata.uid, None)
                    gone.add(pod.metadata.uid)
                elif event["type"] in ("ADDED", "MODIFIED"):
                    pods[pod.metadata.uid] = pod
                await deliver(_listing(pods, gone, begun))

    def _call(self, api: Any) -> tuple[Any, dict[str, str]]:
        if self._namespace:
            return api.list_namespaced_pod, {"namespace": self._namespace, "label_selector": LEASE_LABEL}
        return api.list_pod_for_all_namespaces, {"label_selector": LEASE_LABEL}


def _listing(pods: dict[str, Any], gone: set[str], begun: float) -> PodListing:
    ended = {uid for uid, pod in pods.items() if pod.status.phase in _ENDED}
    return PodListing(
        pods=tuple(_sighting(pod) for uid, pod in pods.items() if uid not in ended),
        age=timedelta(seconds=time.monotonic() - begun),
        gone=frozenset(gone | ended),
    )


def _sighting(pod: Any) -> PodSighting:
    annotations = pod.metadata.annotations or {}
    claim, unclear = _claim(annotations, pod.spec.node_name)
    return PodSighting(
        uid=pod.metadata.uid,
        lease_id=pod.metadata.labels[LEASE_LABEL],
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        phase=pod.status.phase or "Unknown",
        device_uuid=_given(pod) or device_in(annotations.get(DEVICE)) or _injected(pod),
        claim=claim,
        unclear=unclear,
    )


def _claim(annotations: dict[str, str], node: str | None) -> tuple[Claim | None, str]:
    try:
        return parse_claim(annotations, node), ""
    except InvalidRequest as error:
        return None, str(error)


def _given(pod: Any) -> str | None:
    """The device that a device plugin gave it, where the kubelet says so (Kubernetes 1.36)."""
    for status in pod.status.container_statuses or ():
        for resource in status.allocated_resources_status or ():
            for given in resource.resources or ():
                if (device := of_plugin(given.resource_id)) is not None:
                    return device
    return None


def _injected(pod: Any) -> str | None:
    """The device of a pod whose annotation does not name it."""
    environment = [entry for container in pod.spec.containers for entry in container.env or ()]
    named = (device_in(entry.value) for entry in environment if entry.name == _DEVICE_ENV)
    return next((device for device in named if device is not None), None)
