"""The end of a server, however it came: the slice goes back, and no pod stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from jupyterhub.orm import Spawner, User
from jupyterhub.utils import maybe_future, utcnow
from kubernetes_asyncio.client import V1Pod

from mig_spawner.domain.lease import EndReason
from mig_spawner.spawner.lease import LeaseKeeper
from mig_spawner.spawner.release import LATE_POD_MARGIN_S, Creation, PodSlot, end_without_lease, settle
from mig_spawner.spawner.sweep import HUB_LABEL, Place, begin_sweep, hub_mark
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseDocument


class Ending:
    """The part of `MIGSpawner` that gives everything back. It goes before `KubeSpawner`, whose ends it completes."""

    api: Any
    db: Any
    hub: Any
    log: Any
    namespace: str
    pod_name: str
    component_label: str
    active: bool
    orm_spawner: Any
    delete_stopped_pods: bool
    enable_user_namespaces: bool
    k8s_api_request_timeout: int
    k8s_api_request_retry_timeout: int
    _row: int | None
    _keeper: LeaseKeeper
    _creation: Creation
    _granted: LeaseDocument | None
    _started_here: bool
    _lease_known: bool
    _given_back: bool
    _start_future: Any
    _client: Callable[[], AllocatorClient]
    _namespace_default: Callable[[], str]
    _pod_seen: Callable[[], dict[str, Any] | None]
    _start_over: Callable[[], bool]
    _restore_start_timeout: Callable[[], None]

    def run_post_stop_hook(self) -> Any:
        """The admin's hook, and then the slice goes back, whatever the hook did."""
        return self._post_stop()

    async def _post_stop(self) -> None:
        self._restore_start_timeout()
        try:
            await maybe_future(super().run_post_stop_hook())  # type: ignore[misc]  # KubeSpawner's
        finally:
            self._given_back = True
            if self.orm_spawner is not None:
                # The hub writes when a server ended only where its pod went at once; by it a sweep knows what was forgotten.
                self.orm_spawner.last_activity = utcnow(with_tz=False)
            await self._give_back()

    async def _give_back(self) -> None:
        creation, self._creation = self._creation, Creation.NONE
        keeper = self._keeper
        if keeper.lease_id is None and not keeper.asked:
            if creation is Creation.TRIED or (self._pod_seen() is not None and self.delete_stopped_pods):
                end_without_lease(self._slot(), creation, self.log, late_s=self._late_s())
            if self._started_here or self._lease_known:
                return  # there was none
            creation = Creation.TRIED  # a start that the hub forgot when it was killed
        debt = keeper.debt()
        keeper.forget()
        self._granted = None
        await settle(debt, self._slot(), creation, self._end_reason(), late_s=self._late_s())

    def _end_reason(self) -> EndReason:
        future = self._start_future
        if future is None or not self._start_over():
            return EndReason.STOPPED
        if future.cancelled():
            return EndReason.CANCELLED
        return EndReason.STOPPED if future.exception() is None else EndReason.START_FAILED

    def _slot(self) -> PodSlot:
        return PodSlot(self.api, self.namespace, self.pod_name, self.k8s_api_request_timeout)

    def _late_s(self) -> float:
        return float(self.k8s_api_request_retry_timeout + LATE_POD_MARGIN_S)

    async def delete_forever(self) -> None:
        """The server or its user is deleted: whatever lease is left goes back."""
        try:
            await super().delete_forever()  # type: ignore[misc]  # KubeSpawner's
        finally:
            await settle(self._keeper.debt(), self._slot(), Creation.DONE, EndReason.STOPPED, late_s=self._late_s())

    # --- what a hub that was killed has forgotten ----------------------------------------------------------------

    def _begin_sweep(self) -> None:
        self._row = None if self.orm_spawner is None else self.orm_spawner.id
        place = Place(None if self.enable_user_namespaces else self.namespace, self.component_label, self._hub_mark())
        begin_sweep(place, self, self._client, self.api, self.k8s_api_request_timeout, self.log)

    def _hub_mark(self) -> str:
        return "" if self.hub is None else hub_mark(str(self.hub.api_url), str(self._namespace_default()))

    def _mark(self, pod: V1Pod) -> None:
        """Say whose pod it is."""
        if mark := self._hub_mark():
            pod.metadata.labels = {**(pod.metadata.labels or {}), HUB_LABEL: mark}

    @property
    def sweep_key(self) -> tuple[str, str]:
        """Namespace and name of its pod."""
        return self.namespace, self.pod_name

    @property
    def sweep_row(self) -> int | None:
        """Its number in the hub's database; None where there is none."""
        return self._row

    @property
    def sweep_lease(self) -> str | None:
        """The lease that it has."""
        return self._keeper.lease_id

    @property
    def sweep_active(self) -> bool:
        """It runs, or is on its way up or down."""
        return bool(self.active)

    def sweep_rows(self) -> set[int]:
        """The numbers of all servers of this hub that run, or are on their way, by its database."""
        rows = self.db.query(Spawner.id).filter(Spawner.server_id.is_not(None))
        return {row.id for row in rows}

    def sweep_ended(self, user_name: str, server_name: str) -> datetime | None:
        """When a server of this hub was active last, if its database knows that server, and that it runs no more; else None."""
        rows = self.db.query(Spawner.last_activity).join(User, Spawner.user_id == User.id)
        row = rows.filter(
            User.name == user_name, Spawner.name == server_name, Spawner.server_id.is_(None)
        ).one_or_none()
        return None if row is None or row.last_activity is None else row.last_activity.replace(tzinfo=UTC)
