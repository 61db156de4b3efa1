"""Where a device plugin picks the device of a pod: the allocator is told which one it was, so that the ledger names that one.

The kubelet writes it into the pod's status (Kubernetes 1.36 and newer); on older clusters nobody knows, and the lease stands for one
device of its profile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mig_spawner.errors import AllocatorRefused, AllocatorUnavailable
from mig_spawner.spawner.background import in_background
from mig_spawner.spawner.error import Reason, SpawnRefused
from mig_spawner.spawner.injection.base import Injection
from mig_spawner.spawner.lease import LeaseKeeper, Log
from mig_spawner.wire.problem import ProblemCode


class Picked:
    """What the node picked for one server."""

    def __init__(self, keeper: LeaseKeeper, log: Log) -> None:
        self._keeper = keeper
        self._log = log
        self._hearing: asyncio.Task[None] | None = None
        self._refused = ""

    async def hear(self, way: Injection, pod: Mapping[str, Any] | None) -> None:
        """Tell the allocator, if the pod says something that the lease does not say. An allocator that is away is told later.

        Raises:
            SpawnRefused: the ledger has the device for somebody whose server is made for it.
        """
        given = self._unheard(way, pod)
        if given is None:
            return
        before = self._keeper.lease
        try:
            await self._keeper.learn_device(given)
        except AllocatorUnavailable as error:
            self._log.info("The allocator could not be told of the device %s yet: %s", given, error)
        except AllocatorRefused as error:
            if error.code == ProblemCode.CONFLICT:
                raise SpawnRefused(
                    f"{error} Start the server again; tell an admin of this hub if it happens often.",
                    reason=Reason.CAPACITY,
                ) from error
            self._log.info("The allocator does not take the device %s yet: %s", given, error)
        else:
            if before is not None and before.device_uuid != given:
                self._log.info("The node gave %s to the lease %s, not %s.", given, before.lease_id, before.device_uuid)

    def hear_soon(self, way: Injection, pod: Mapping[str, Any] | None) -> None:
        """The same in the background, for a server that runs: it goes on whatever the ledger says, and the log has it once."""
        if (self._hearing is None or self._hearing.done()) and self._unheard(way, pod) is not None:
            self._hearing = in_background(self._hear(way, pod), "mig-picked")

    async def _hear(self, way: Injection, pod: Mapping[str, Any] | None) -> None:
        try:
            await self.hear(way, pod)
        except SpawnRefused as refused:
            if str(refused.message) != self._refused:
                self._refused = str(refused.message)
                self._log.warning("The ledger and its node disagree: %s", refused.message)

    def _unheard(self, way: Injection, pod: Mapping[str, Any] | None) -> str | None:
        given, lease = None if pod is None else way.learned(pod), self._keeper.lease
        if given is None or lease is None or (lease.device_uuid == given and lease.device_known):
            return None
        return given
