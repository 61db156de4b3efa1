"""Ending pods that no server of this hub has any more.

A hub that is killed while it sees to the end of a pod forgets it, and so does one that gave up. The ledger does not: the lease stays
Releasing while its pod is there. So one task of each hub compares the pods with the ledger, and deletes those whose lease is over. A
pod without a lease is in no ledger, but it says whose it is: it is deleted when the database of that hub says that this server has
ended since the pod was made. A hub that lost its database, or has an older one back, knows no such thing and leaves it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from weakref import WeakSet

from kubernetes_asyncio.client import V1Pod

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.spawner.background import PerHub, in_background
from mig_spawner.spawner.injection.conflict import LEASE_LABEL
from mig_spawner.spawner.lease import Log
from mig_spawner.spawner.pod import lease_of
from mig_spawner.spawner.release import PodSlot
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseState

SWEEP_S: Final = 30.0
"""How long it pauses between two looks, seconds. A pod is deleted at the second look that finds it so."""

HUB_LABEL: Final = "mig-spawner/hub"
"""The label by which a pod says which hub made it."""

USER: Final = "hub.jupyter.org/username"
SERVER: Final = "hub.jupyter.org/servername"
"""Annotations of KubeSpawner: whose pod it is, and for which of their servers; without the second for the default one."""

_OVER: Final = (LeaseState.RELEASING, LeaseState.CLOSED)
_ENDED: Final = ("Succeeded", "Failed")


def hub_mark(api_url: str, namespace: str) -> str:
    """What stands for a hub in a label: where its servers call it, and its own namespace, since `http://hub:8081` may be in many."""
    return hashlib.sha256(f"{namespace} {api_url}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Place:
    """Where a hub has its pods.

    Attributes:
        namespace: None where each person has one: then all of them.
        component: the label that KubeSpawner gives to pods of servers, `component_label`.
        mark: of the hub, see `hub_mark`; empty for none.
    """

    namespace: str | None
    component: str
    mark: str = ""


class Server(Protocol):
    """What a sweep asks of a server, whether it runs or not."""

    @property
    def sweep_key(self) -> tuple[str, str]: ...

    @property
    def sweep_row(self) -> int | None: ...

    @property
    def sweep_lease(self) -> str | None: ...

    @property
    def sweep_active(self) -> bool: ...

    def sweep_rows(self) -> set[int]: ...

    def sweep_ended(self, user_name: str, server_name: str) -> datetime | None: ...


@dataclass(frozen=True)
class _Hub:
    """What the servers of one hub have together.

    Attributes:
        begun: places that are seen to.
        servers: all that this hub has looked at in this life.
    """

    begun: set[Place] = field(default_factory=set)
    servers: WeakSet[Server] = field(default_factory=WeakSet)


_hub = PerHub(_Hub)


def begin_sweep(
    place: Place, server: Server, client: Callable[[], AllocatorClient], api: Any, timeout_s: float, log: Log
) -> None:
    """See to the pods of this place from now on, once for all servers of this hub; what `server` has is left alone.

    Args:
        api: the CoreV1Api.
        timeout_s: for one request to Kubernetes.
    """
    try:
        hub = _hub.here()
    except RuntimeError:
        return  # no hub runs: somebody looks at the class
    hub.servers.add(server)
    if place not in hub.begun:
        hub.begun.add(place)
        _ = in_background(Sweep(place, client, api, timeout_s, log).run(), f"mig-sweep-{place.namespace or 'all'}")


class Sweep:
    """Looks again and again; see `begin_sweep`."""

    def __init__(
        self, place: Place, client: Callable[[], AllocatorClient], api: Any, timeout_s: float, log: Log
    ) -> None:
        self._place = place
        self._client = client
        self._api = api
        self._timeout_s = timeout_s
        self._log = log
        self._doubtful: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:
                self._log.info("Pods could not be compared with servers and leases: %r", error)
            await asyncio.sleep(SWEEP_S)

    async def look(self) -> None:
        """Delete pods that no server has, if that was so at the last look as well.

        Raises:
            Exception: Kubernetes or the hub's database does not answer, or refuses.
        """
        doubtful: set[str] = set()
        async for pod, why in self._lost():
            if pod.metadata.uid not in self._doubtful:
                doubtful.add(pod.metadata.uid)
                continue
            self._log.warning("Deleting the pod %s: %s.", pod.metadata.name, why)
            await PodSlot(self._api, pod.metadata.namespace, pod.metadata.name, self._timeout_s).delete(pod)
        self._doubtful = frozenset(doubtful)

    async def _lost(self) -> AsyncIterator[tuple[V1Pod, str]]:
        """Pods that nobody will end, and why, in words."""
        for pod, lease_id in self._without_server(await self._pods(LEASE_LABEL)):
            over = await self._over(lease_id)
            if over is not None:
                yield pod, f"no server has it, and its lease {over}"
        if self._place.mark:
            pods = await self._pods(f"{HUB_LABEL}={self._place.mark},!{LEASE_LABEL}")
            servers = list(_hub.here().servers)
            used = _pods_of_servers(servers)
            for pod in () if used is None else pods:
                key, runs = (pod.metadata.namespace, pod.metadata.name), pod.status.phase not in _ENDED
                if runs and _stays(pod) and key not in (used or ()) and _ended_since(pod, servers):
                    yield pod, "it has no lease, and the server that it was made for has ended"

    async def _pods(self, labels: str) -> list[V1Pod]:
        selector = f"{labels},component={self._place.component}"
        async with asyncio.timeout(self._timeout_s):
            if self._place.namespace is None:
                listed = await self._api.list_pod_for_all_namespaces(label_selector=selector)
            else:
                listed = await self._api.list_namespaced_pod(self._place.namespace, label_selector=selector)
        pods: list[V1Pod] = listed.items
        return pods

    def _without_server(self, pods: list[V1Pod]) -> Iterator[tuple[V1Pod, str]]:
        used = {server.sweep_lease for server in _hub.here().servers}
        for pod in pods:
            lease_id = lease_of(pod.metadata.labels)
            if lease_id is not None and lease_id not in used and _stays(pod):
                yield pod, lease_id

    async def _over(self, lease_id: str) -> str | None:
        """How a lease ended, in words; None while it has not, or nobody knows. A fault of ours never ends somebody's work."""
        try:
            lease = await self._client().lease(lease_id)
        except (AllocatorUnavailable, AllocatorRefused):
            return None
        return f"{lease_id} is over ({lease.reason})" if lease.state in _OVER else None


def _stays(pod: V1Pod) -> bool:
    return getattr(pod.metadata, "deletion_timestamp", None) is None


def _ended_since(pod: V1Pod, servers: Iterable[Server]) -> bool:
    """The hub's database knows the server of a pod, and that it has ended after the pod was made."""
    said = pod.metadata.annotations or {}
    asked = next((server for server in servers if server.sweep_row is not None), None)
    if asked is None or USER not in said:
        return False
    ended = asked.sweep_ended(said[USER], said.get(SERVER, ""))
    made: datetime = pod.metadata.creation_timestamp
    return ended is not None and made <= ended


def _pods_of_servers(servers: Iterable[Server]) -> set[tuple[str, str]] | None:
    """The pods of all servers that there are, by namespace and name; None while that is not known.

    After a start the hub looks at its servers one after the other. Until it has looked at every one, some pod may be theirs.
    """
    known = [server for server in servers if server.sweep_row is not None]
    if not known:
        return None
    active = known[0].sweep_rows()
    if not active <= {server.sweep_row for server in known}:
        return None
    return {s.sweep_key for s in known if s.sweep_row in active or s.sweep_active}
