"""What a way takes beyond the manifest of the pod, on the cluster: rights seen beforehand, companions created, hooks watched."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from kubernetes_asyncio.client import ApiClient, ApiException, V1Pod

from mig_spawner.spawner.container import as_json
from mig_spawner.spawner.error import Reason, SpawnRefused, invalid
from mig_spawner.spawner.injection.base import Companion, Device, Injection
from mig_spawner.spawner.injection.companion import create, missing_rights
from mig_spawner.spawner.injection.conflict import changed
from mig_spawner.spawner.release import PodSlot
from mig_spawner.wire.lease import LeaseDocument

_AGAIN_S: Final = 0.5


@dataclass(frozen=True)
class Injector:
    """One way, for the pod of one server.

    Args:
        timeout_s: for one request.
        within_s: for one thing to be created.
    """

    way: Injection
    api: ApiClient
    namespace: str
    slot: PodSlot
    log: logging.Logger | logging.LoggerAdapter[Any]
    timeout_s: float
    within_s: float

    async def see_rights(self) -> None:
        """Before anybody waits in line: this hub may do what the way takes.

        Raises:
            SpawnRefused: it may not; the sentence has the way to grant it, and so has the log.
        """
        missing = await missing_rights(self.api, self.namespace, self.way.rights, timeout_s=self.timeout_s)
        if missing:
            self._refuse(", ".join(missing))

    def report_settings(self, extra_container_config: Mapping[str, Any]) -> None:
        """An `env` there is no addition, as people think: KubeSpawner puts it in the place of the whole list."""
        if "env" in extra_container_config:
            self.log.warning(
                "extra_container_config replaces all variables of the pod %s, the hub's own as well; only those of its GPU were "
                "put back. Use `environment` instead.",
                self.slot.name,
            )

    def report_changes(self, pod: V1Pod, lease: LeaseDocument | None) -> None:
        """The admin's hook has the last word on a pod; what it broke is in the log."""
        lease_id = None if lease is None else lease.lease_id
        for sentence in changed(as_json(pod), Device.of(lease), lease_id, self.way):
            self.log.warning("The pod %s was changed, probably by modify_pod_hook: %s.", self.slot.name, sentence)

    async def create_beside(self, lease: LeaseDocument | None) -> None:
        """Create what the device needs beside the pod that was just created. If that fails the start fails, and the hub stops the pod.

        Raises:
            SpawnRefused: the cluster cannot, or does not let this hub.
            ApiException: it refuses for another reason.
            TimeoutError: it does not answer.
        """
        device = Device.of(lease)
        if device is None or not self.way.rights:
            return
        pod = await self._created()
        if pod is None:
            return
        for companion in self.way.beside(as_json(pod), device):
            try:
                await create(self.api, self.namespace, companion, pod, timeout_s=self.timeout_s, within_s=self.within_s)
            except ApiException as error:
                self._translate(companion, error)

    async def _created(self) -> V1Pod | None:
        """The pod with the uid that the API server gave it; None if it is gone again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.within_s
        while True:
            try:
                return await self.slot.find()
            except OSError as error:
                if loop.time() >= until:
                    raise TimeoutError(str(error)) from error
            await asyncio.sleep(_AGAIN_S)

    def _translate(self, companion: Companion, error: ApiException) -> NoReturn:
        what = f"{companion.plural}.{companion.group}"
        if error.status == 404:
            raise invalid(
                f"This cluster has no {what} in version {companion.version}, and slices are handed out that way here. "
                "Please tell its admin. Servers without a GPU start."
            ) from error
        if error.status == 403 and "exceeded quota" in str(error.body):
            raise SpawnRefused(
                "The quota of this cluster for GPU devices is used up. Stop another server, or ask an admin for more.",
                reason=Reason.QUOTA,
            ) from error
        if error.status == 403:
            self._refuse(f"create {what}", error)
        raise error

    def _refuse(self, what: str, error: Exception | None = None) -> NoReturn:
        self.log.error("In the namespace %s this hub may not %s. Fix: %s.", self.namespace, what, self.way.fix)
        raise invalid(
            f"This hub may not {what}, and slices are handed out that way here. Please tell its admin: {self.way.fix}. "
            "Servers without a GPU start."
        ) from error
