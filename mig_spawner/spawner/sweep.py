"""Ending pods whose lease has ended and that no server of this hub has.

A hub that is killed while it sees to the end of a pod forgets it, and so does one that gave up. The ledger does not: the lease stays
Releasing while its pod is there. So one task of each hub compares the pods with the ledger, and deletes those whose lease is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from kubernetes_asyncio.client import V1Pod

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.spawner.background import PerHub, in_background
from mig_spawner.spawner.injection.conflict import LEASE_LABEL
from mig_spawner.spawner.lease import LeaseKeeper, Log
from mig_spawner.spawner.pod import lease_of
from mig_spawner.spawner.release import PodSlot
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseState

SWEEP_S: Final = 30.0
"""How long it pauses between two looks, seconds. A pod is deleted at the second look that finds it so."""

_OVER: Final = (LeaseState.RELEASING, LeaseState.CLOSED)


@dataclass(frozen=True)
class Place:
    """Where a hub has its pods.

    Attributes:
        namespace: None where each person has one: then all of them.
        component: the label that KubeSpawner gives to pods of servers, `component_label`.
    """

    namespace: str | None
    component: str


@dataclass(frozen=True)
class _Hub:
    """What the servers of one hub have together.

    Attributes:
        begun: places that are seen to.
        keepers: of all servers, each with the lease that it has.
    """

    begun: set[Place] = field(default_factory=set)
    keepers: WeakSet[LeaseKeeper] = field(default_factory=WeakSet)


_hub = PerHub(_Hub)


def begin_sweep(
    place: Place, keeper: LeaseKeeper, client: Callable[[], AllocatorClient], api: Any, timeout_s: float, log: Log
) -> None:
    """See to the pods of this place from now on, once for all servers of this hub; what `keeper` has is left alone.

    Args:
        api: the CoreV1Api.
        timeout_s: for one request to Kubernetes.
    """
    try:
        hub = _hub.here()
    except RuntimeError:
        return  # no hub runs: somebody looks at the class
    hub.keepers.add(keeper)
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
                self._log.info("Pods could not be compared with the ledger of GPU leases: %r", error)
            await asyncio.sleep(SWEEP_S)

    async def look(self) -> None:
        """Delete pods that have no server and whose lease is over, if that was so at the last look as well.

        Raises:
            Exception: Kubernetes does not answer, or refuses.
        """
        doubtful: set[str] = set()
        for pod, lease_id in self._without_server(await self._pods()):
            over = await self._over(lease_id)
            if over is None:
                continue
            if pod.metadata.uid not in self._doubtful:
                doubtful.add(pod.metadata.uid)
                continue
            self._log.warning("Deleting the pod %s: no server has it, and its lease %s.", pod.metadata.name, over)
            await PodSlot(self._api, pod.metadata.namespace, pod.metadata.name, self._timeout_s).delete(pod)
        self._doubtful = frozenset(doubtful)

    async def _pods(self) -> list[V1Pod]:
        selector = f"{LEASE_LABEL},component={self._place.component}"
        async with asyncio.timeout(self._timeout_s):
            if self._place.namespace is None:
                listed = await self._api.list_pod_for_all_namespaces(label_selector=selector)
            else:
                listed = await self._api.list_namespaced_pod(self._place.namespace, label_selector=selector)
        pods: list[V1Pod] = listed.items
        return pods

    def _without_server(self, pods: list[V1Pod]) -> Iterator[tuple[V1Pod, str]]:
        used = {keeper.lease_id for keeper in _hub.here().keepers}
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
