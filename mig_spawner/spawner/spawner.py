"""`MIGSpawner`: a KubeSpawner whose servers may have a slice of a GPU.

Only seams are here; what they do is in the modules beside: `options` and `form` for the choice, `lease` for the slice, `pod` for what
the pod gets, `ending` for how everything is given back. The order of one start:

    load_user_options   the choice becomes an entry of the menu, or a refusal
    get_pod_manifest    the lease is acquired, in line if need be; then the pod is made and edited
    _make_create_pod_request   remembered, since a pod that was asked for may still appear; then what its device needs beside it
    poll                renews; ends a server whose lease has ended
    run_post_stop_hook  gives the slice back. The hub calls it at the end of every start and every server, however they ended;
                        `stop` is called on other occasions too and never gives anything back

`_start`, `_start_future` and `_make_create_pod_request` are private to KubeSpawner; tests pin how they are called.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from kubernetes_asyncio.client import ApiException, V1Pod
from kubespawner import KubeSpawner

from mig_spawner.domain.lease import EndReason, Holder
from mig_spawner.domain.request import Request
from mig_spawner.spawner.background import in_background, shared_client
from mig_spawner.spawner.check.outside import put_before
from mig_spawner.spawner.choice import ChoiceOfSlice
from mig_spawner.spawner.container import VISIBLE
from mig_spawner.spawner.ending import Ending
from mig_spawner.spawner.error import SpawnRefused, pod_refusal, refusing, uncounted
from mig_spawner.spawner.fieldset import FormOfMenu
from mig_spawner.spawner.injection.conflict import nvidia_resources, refuse_resources
from mig_spawner.spawner.injection.injector import Injector
from mig_spawner.spawner.injection.trait import InjectionTraits
from mig_spawner.spawner.lease import CUT_S, GRACE_S, OUTAGE_S, RENEW_S, LeaseKeeper
from mig_spawner.spawner.menu import MAX_NAME, groups_of
from mig_spawner.spawner.move import Moves, NoRoom, merged, unplaced
from mig_spawner.spawner.picked import Picked
from mig_spawner.spawner.pod import edit_pod, gpu_env, lease_of
from mig_spawner.spawner.progress import Progress
from mig_spawner.spawner.release import Creation, end_former_pod, let_be, settle
from mig_spawner.spawner.share import beyond_share, parse_bounds, parse_sizes, with_share
from mig_spawner.spawner.trait import MIGTraits
from mig_spawner.spawner.waiting.guest import Guest
from mig_spawner.spawner.waiting.stage import Stage
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.lease import LeaseDocument
from mig_spawner.wire.menu import MenuEntry

SLOW_CANCEL_S: Final = 3.0
"""So long a hub may take to stop a server whose start it cancelled, seconds; and again while it says that it is at it."""
SLOW_CANCELS: Final = 40


class MIGSpawner(ChoiceOfSlice, Guest, Ending, FormOfMenu, MIGTraits, InjectionTraits, KubeSpawner):  # type: ignore[misc]
    """Start notebook servers on Kubernetes, each with a slice of a GPU that a mig-spawner allocator leases.

    Everything that configures KubeSpawner configures this class as well.
    """

    start_timeout: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._keeper = LeaseKeeper(self._client, self._mig_holder, self.log)
        self._picked = Picked(self._keeper, self.log)
        self._progress = Progress()
        self._moves = Moves(0)
        self._entry: MenuEntry | None = None
        self._granted: LeaseDocument | None = None
        self._creation = Creation.NONE
        self._base_start_timeout: int | None = None
        self._started_here = False
        self._lease_known = False
        self._given_back = True
        self._suggested: str | None = None
        self._begin_sweep()

    def _client(self) -> AllocatorClient:
        return shared_client(self.allocator_url, self.allocator_token, self.allocator_timeout)

    def _mig_holder(self) -> Holder:
        return Holder(str(self.user.id), str(self.name or "")[:MAX_NAME], str(self.user.name)[:MAX_NAME])

    async def load_user_options(self) -> None:
        """Profiles first, then ours; what cannot be had is refused with a sentence and not counted as a fault of the hub."""
        if self._moves.left:
            return  # they are loaded: this start goes on elsewhere
        await super().load_user_options()
        self._entry = await self._chosen()

    # --- starting -----------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Future[str]:
        """Start. Time in line is apart from `start_timeout`: the hub waits for both, the pod for `start_timeout` alone."""
        self._keeper.forget()
        let_be(self._slot())
        self._entry = self._granted = None
        self._creation = Creation.NONE
        if self._progress.closed:
            self._progress = Progress()
        self._started_here, self._lease_known, self._given_back = True, False, False
        self._moves = Moves(self.unschedulable_timeout)
        base = self.start_timeout
        future: asyncio.Future[str] = super().start()
        # The hub reads `start_timeout` after this returns and before the task first runs; `_start` puts it back.
        self._base_start_timeout = base
        self.start_timeout = base + math.ceil(self.queue_timeout + GRACE_S + CUT_S + OUTAGE_S + self._moves.longest_s)
        return future

    async def _start(self) -> str:
        self._restore_start_timeout()
        beat = in_background(self._beat(), f"mig-beat-{self.pod_name}")
        try:
            with uncounted(None if self.handler is None else self.handler.settings):
                return await self._start_somewhere()
        except asyncio.CancelledError:
            _ = in_background(self._see_it_stopped(), f"mig-cancelled-{self.pod_name}")
            raise
        finally:
            beat.cancel()
            self._progress.close()
            self._moves.progress.close()

    async def _see_it_stopped(self) -> None:
        """A hub that is too busy to see a start end within a second of its cancellation answers 500, and shows the server as ready for
        ever: it never stops what it cancelled (JupyterHub 5 and 6). So see that it does.
        """
        for _ in range(SLOW_CANCELS):
            await asyncio.sleep(SLOW_CANCEL_S)
            if not (self._spawn_pending or self._stop_pending):
                break
        if not self._given_back and self.user.spawners.get(self.name) is self:
            self.log.warning(
                "The cancelled server %s was never stopped by its hub, so it is stopped now.", self._log_name
            )
            await self.user.stop(self.name)

    async def _start_somewhere(self) -> str:
        while True:
            try:
                url: str = await self._moves.watch(super()._start(), self._unplaced)
                await self._picked.hear(self.mig_injection, self._pod_seen())
                if self.start_check:
                    await self._see_it_checked(url)
                self._moves.progress.say("The server is about to answer.", 90, Stage.OPEN)
                return url
            except NoRoom as room:
                await self._move(room)

    def _unplaced(self) -> str | None:
        self._tell_stage()
        return None if self._granted is None else unplaced(self._pod_seen())

    async def _move(self, room: NoRoom) -> None:
        """Give up the pod and its lease; what is asked for next is elsewhere."""
        if self._granted is not None and self._granted.placement is not None:
            self._moves.leave(self._granted.placement.node, room)
        await self.stop(now=True)
        await settle(self._keeper.debt(), self._slot(), self._creation, EndReason.START_FAILED, late_s=self._late_s())
        self._keeper.forget()
        self._granted, self._creation, self._lease_known = None, Creation.NONE, False

    def _restore_start_timeout(self) -> None:
        if self._base_start_timeout is not None:
            self.start_timeout, self._base_start_timeout = self._base_start_timeout, None

    async def _beat(self) -> None:
        """While the pod takes its time to start, nobody polls: say that the lease is wanted."""
        while True:
            await asyncio.sleep(RENEW_S / 2)
            if self._creation is Creation.DONE:
                self._keeper.renew_soon()

    async def get_pod_manifest(self) -> V1Pod:
        """The pod, once its lease is held."""
        if self._moves.left:
            self._last_event = self._moves.marker
        self._moves.marker = self._last_event
        if self._entry is not None and self._entry.request is not None:
            await self._see_that_a_lease_can_be_used()
        lease = await self._ensure_lease()
        self._begin_sweep()  # a profile may have chosen another namespace
        pod = await super().get_pod_manifest()
        self._injector().report_settings(self.extra_container_config)
        if self.start_check and not put_before(pod):
            self.log.warning(
                "The pod %s leaves its command to its image, so it is not checked: set `cmd`.", self.pod_name
            )
        placement, sizes, entry = None if lease is None else lease.placement, parse_sizes(self.node_sizes), self._entry
        if entry is not None and placement is not None:
            entry = with_share(entry, placement, sizes, parse_bounds(self.node_share))
        with refusing():
            pod = edit_pod(pod, lease, entry, runtime_class=self.nvidia_runtime_class, way=self.mig_injection)
        self._mark(pod)
        for sentence in () if placement is None else beyond_share(pod, placement, sizes):
            self.log.warning("%s", sentence)
        return pod

    async def _see_that_a_lease_can_be_used(self) -> None:
        """Before anybody waits for one: nothing of the profile is against it, and this hub has the rights to use it."""
        asked = [*self.extra_resource_limits, *self.extra_resource_guarantees]
        with refusing():
            refuse_resources(nvidia_resources(asked))
        await self._injector().see_rights()

    def _injector(self) -> Injector:
        times = (self.k8s_api_request_timeout, self.k8s_api_request_retry_timeout)
        return Injector(self.mig_injection, self.api.api_client, self.namespace, self._slot(), self.log, *times)

    async def _ensure_lease(self) -> LeaseDocument | None:
        entry = self._entry
        if self._granted is None and entry is not None and entry.request is not None:
            self._granted = await self._acquire(entry, entry.request)
        self._lease_known = True
        self._progress.close()
        return self._granted

    async def _acquire(self, entry: MenuEntry, request: Request) -> LeaseDocument | None:
        moves, began = self._moves, time.monotonic()
        progress = moves.progress if moves.left else self._progress
        watch = in_background(self._watch_free(), f"mig-free-{self.pod_name}")
        try:
            return await self._keeper.acquire(
                request,
                progress,
                budget_s=moves.budget_s(self.queue_timeout),
                duration_s=entry.duration,
                avoid_nodes=moves.left,
                choice=entry.id,
                groups=groups_of(self.user),
                may_wait=self._stand_in_line,
                end_former=lambda: end_former_pod(self._slot(), self.log),
                picked_by_node=not self.mig_injection.tells_device,
            )
        except SpawnRefused as error:
            if not moves.left:
                raise
            raise moves.refusal(str(error.message)) from error
        finally:
            watch.cancel()
            moves.waited(time.monotonic() - began)

    def get_env(self) -> dict[str, Any]:
        """KubeSpawner's variables, and those of the slice over them."""
        env: dict[str, Any] = super().get_env()
        env.pop(VISIBLE, None)
        with refusing():
            env.update(gpu_env(self._granted, self.mig_injection))
        return env

    async def _make_create_pod_request(self, pod: V1Pod, request_timeout: float) -> bool:
        before, self._creation = self._creation, Creation.TRIED
        if before is Creation.NONE:
            self._injector().report_changes(pod, self._granted)
        try:
            created: bool = await super()._make_create_pod_request(pod, request_timeout)
        except ApiException as error:
            if 400 <= (error.status or 0) < 500:
                self._creation = before
            if (refusal := pod_refusal(error.status, str(error.body))) is not None:
                raise refusal from error
            raise
        if created:
            self._creation = Creation.DONE
            self._keeper.renew_soon(force=True)
            await self._injector().create_beside(self._granted)
        return created

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Place in line, the slice, and then what KubeSpawner tells of the pod."""
        async for event in self._progress.events(self._start_over):
            yield event
        async for event in merged(super().progress(), self._moves.progress.events(self._start_over)):
            yield event

    def _start_over(self) -> bool:
        return self._start_future is not None and self._start_future.done()

    # --- running ------------------------------------------------------------------------------------------------

    async def poll(self) -> int | None:
        """As KubeSpawner; also None while a start is under way or its pod may still appear, so that the hub calls `stop`."""
        if self._start_future is not None and not self._start_over():
            return None
        status: int | None = await super().poll()
        if status is not None:
            return None if self._creation is Creation.TRIED else status
        self._adopt_from_pod()
        self._picked.hear_soon(self.mig_injection, self._pod_seen())
        if self._keeper.lost is not None:
            self.log.warning(
                "The lease of %s has ended (%s), so its server is stopped.", self._log_name, self._keeper.lost.reason
            )
            await self.stop(now=True)
            return 1
        self._keeper.renew_soon()
        return None

    def _adopt_from_pod(self) -> None:
        """After a restart of the hub in the middle of a start, only the pod knows its lease."""
        if self._lease_known or self._started_here:
            return
        pod = self._pod_seen()
        if pod is None:
            return
        self._lease_known, self._creation = True, Creation.DONE
        lease_id = lease_of(pod["metadata"].get("labels"))
        if lease_id is not None:
            self._keeper.adopt(lease_id)

    def _pod_seen(self) -> dict[str, Any] | None:
        pods = self.pod_reflector.pods if self.pod_reflector is not None else {}
        found: dict[str, Any] | None = pods.get(f"{self.namespace}/{self.pod_name}")
        return found

    # --- the hub's database -------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """KubeSpawner's state and, as a cache, which lease the server lives on."""
        state: dict[str, Any] = super().get_state()
        if self._lease_known:
            state["mig"] = {"lease_id": self._keeper.lease_id}
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what another life of the hub wrote; unknown keys do no harm."""
        super().load_state(state)
        saved = state.get("mig")
        if isinstance(saved, dict):
            self._lease_known = True
            if isinstance(saved.get("lease_id"), str):
                self._keeper.adopt(saved["lease_id"])
                self._creation = Creation.DONE

    def clear_state(self) -> None:
        """Nothing of one server is left for the next."""
        super().clear_state()
        self._keeper.forget()
        self._granted = None
        self._lease_known = False
