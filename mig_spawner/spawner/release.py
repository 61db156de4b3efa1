"""Giving a slice back when a server has ended, with an honest word about its pod.

A slice may go to somebody else only when nothing can run on it any more, and that is not known from the hub's side alone: a pod whose
creation was asked for and never seen may still appear. So such a pod is watched for, and deleted when it comes, in the background.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any, Final

from kubernetes_asyncio.client import ApiException, V1DeleteOptions, V1Pod, V1Preconditions

from mig_spawner.domain.lease import EndReason, PodFate
from mig_spawner.errors import AllocatorUnavailable
from mig_spawner.spawner.background import in_background
from mig_spawner.spawner.lease import Debt, Log
from mig_spawner.spawner.pod import lease_of
from mig_spawner.wire.lease import LeaseRelease

LATE_POD_MARGIN_S: Final = 15.0
"""How much longer than the API server's own time limit a pod may need to appear."""
GIVE_UP_S: Final = 900.0
"""How long a release that nobody hears is tried again; the allocator's own timers end the lease then."""

_LOOK_EVERY_S: Final = 1.0
_ending: dict[tuple[str, str], asyncio.Task[None]] = {}
"""What sees to the end of pods without a lease, by namespace and name."""


class Creation(Enum):
    """What one start did about its pod."""

    NONE = "none"
    """Its creation was never asked for, or was refused."""
    TRIED = "tried"
    """It was asked for, and nobody said that it was done."""
    DONE = "done"
    """It was created."""


class PodSlot:
    """The pod of one server by its name, read and deleted at the API server itself.

    Args:
        timeout_s: for one request.
    """

    def __init__(self, api: Any, namespace: str, name: str, timeout_s: float) -> None:
        self._api = api
        self._namespace = namespace
        self._timeout_s = timeout_s
        self.name = name

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self._namespace, self.name

    async def find(self) -> V1Pod | None:
        """The pod, or None if there is none for certain.

        Raises:
            OSError: it cannot be known now.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                pod: V1Pod = await self._api.read_namespaced_pod(self.name, self._namespace)
                return pod
        except ApiException as error:
            if error.status == 404:
                return None
            raise OSError(f"The pod {self.name} could not be read: {error.status} {error.reason}") from error
        except Exception as error:  # whatever a broken connection raises
            raise OSError(f"The pod {self.name} could not be read: {error!r}") from error

    async def delete(self, pod: V1Pod) -> None:
        """Delete exactly this pod; one of the same name that came after it is left alone."""
        body = V1DeleteOptions(preconditions=V1Preconditions(uid=pod.metadata.uid), grace_period_seconds=0)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._api.delete_namespaced_pod(self.name, self._namespace, body=body)
        except ApiException as error:
            if error.status not in {404, 409}:
                raise OSError(f"The pod {self.name} could not be deleted: {error.status} {error.reason}") from error
        except Exception as error:
            raise OSError(f"The pod {self.name} could not be deleted: {error!r}") from error


async def end_former_pod(slot: PodSlot, log: Log) -> None:
    """Delete a pod that lives on a lease of before: KubeSpawner would as well, but only once a start has its own."""
    try:
        pod = await slot.find()
        if pod is not None and lease_of(pod.metadata.labels) is not None:
            await slot.delete(pod)
    except OSError as error:
        log.warning("%s", error)


async def settle(debt: Debt, slot: PodSlot, creation: Creation, reason: EndReason, *, late_s: float) -> None:
    """Give the lease back now; what cannot be said or done now goes on in the background.

    Args:
        late_s: how long a pod that was asked for may take to appear, seconds.
    """
    fate = await _fate(debt, slot, creation)
    lease_ids = frozenset() if debt.lease_id is None else frozenset({debt.lease_id})
    heard = True
    try:
        leases = await debt.pay(LeaseRelease(reason=reason, pod=fate, pod_name=slot.name))
        lease_ids |= {lease.lease_id for lease in leases}
    except AllocatorUnavailable as error:
        heard = False
        debt.log.warning("The lease of %s could not be given back yet: %s", debt.holder, error)
    if not heard or fate is PodFate.UNKNOWN:
        work = _finish(debt, slot, creation, reason, fate, lease_ids, late_s, heard=heard)
        _ = in_background(work, f"mig-release-{slot.name}")


async def _fate(debt: Debt, slot: PodSlot, creation: Creation) -> PodFate:
    if creation is Creation.NONE:
        return PodFate.NONE
    try:
        pod = await slot.find()
    except OSError as error:
        debt.log.warning("%s", error)
        return PodFate.UNKNOWN
    if pod is not None and debt.lease_id in {None, lease_of(pod.metadata.labels)}:
        return PodFate.UNKNOWN
    return PodFate.UNKNOWN if creation is Creation.TRIED else PodFate.GONE


async def _finish(
    debt: Debt,
    slot: PodSlot,
    creation: Creation,
    reason: EndReason,
    fate: PodFate,
    lease_ids: frozenset[str],
    late_s: float,
    *,
    heard: bool,
) -> None:
    try:
        if not heard:
            fate_known = LeaseRelease(reason=reason, pod=fate, pod_name=slot.name)
            lease_ids |= await _insist(debt, fate_known)
        if fate is PodFate.UNKNOWN and lease_ids:
            await _see_it_gone(debt, slot, creation, lease_ids, late_s)
            await _insist(debt, LeaseRelease(reason=reason, pod=PodFate.GONE, pod_name=slot.name))
    except TimeoutError:
        debt.log.warning(
            "Gave up on the lease of %s after %d minutes; the allocator ends it by itself.",
            debt.holder,
            GIVE_UP_S // 60,
        )


async def _insist(debt: Debt, release: LeaseRelease) -> frozenset[str]:
    """Give back until it is heard; the ids of the leases that were given back."""
    pause = 0.5
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            try:
                return frozenset(lease.lease_id for lease in await debt.pay(release))
            except AllocatorUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 15.0)


async def _see_it_gone(debt: Debt, slot: PodSlot, creation: Creation, lease_ids: frozenset[str], late_s: float) -> None:
    """Wait until no pod lives on these leases and none can appear any more; delete it if it does."""
    await _end(slot, debt.log, lease_ids, late_s if creation is Creation.TRIED else 0)


async def _end(slot: PodSlot, log: Log, lease_ids: frozenset[str | None], late_s: float) -> None:
    """Delete the pod until it is gone, and as long as it may appear, if it lives on one of these; None is no lease."""
    loop = asyncio.get_running_loop()
    until = loop.time() + late_s
    async with asyncio.timeout(GIVE_UP_S):
        while True:
            try:
                pod = await slot.find()
                if pod is not None and lease_of(pod.metadata.labels) in lease_ids:
                    if getattr(pod.metadata, "deletion_timestamp", None) is None:
                        log.warning("Deleting the pod %s, which is there although its server was stopped.", slot.name)
                        await slot.delete(pod)
                elif loop.time() >= until:
                    return
            except OSError as error:
                log.info("%s", error)
            await asyncio.sleep(_LOOK_EVERY_S)


def end_without_lease(slot: PodSlot, creation: Creation, log: Log, *, late_s: float) -> None:
    """See to the end of a pod without a lease, in the background and until its name is wanted again.

    KubeSpawner asks once to delete a pod, and never for one that appears after its server was given up.
    """

    async def end() -> None:
        try:
            await _end(slot, log, frozenset({None}), late_s if creation is Creation.TRIED else 0)
        except TimeoutError:
            log.warning("Gave up on the end of the pod %s after %d minutes.", slot.name, GIVE_UP_S // 60)

    let_be(slot)
    task = _ending[slot.key] = in_background(end(), f"mig-end-{slot.name}")
    task.add_done_callback(lambda done: _ending.pop(slot.key) if _ending.get(slot.key) is done else None)


def let_be(slot: PodSlot) -> None:
    """The next server of this name starts: what is there from now on is its own."""
    if (task := _ending.pop(slot.key, None)) is not None:
        task.cancel()
