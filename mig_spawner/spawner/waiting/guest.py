"""Whoever waits: what of a start the room shows, and what may be asked for from there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

from jupyterhub.app import JupyterHub
from jupyterhub.utils import url_escape_path, url_path_join

from mig_spawner.spawner.background import PerHub
from mig_spawner.spawner.check.outside import fault_of
from mig_spawner.spawner.error import Reason, SpawnRefused, invalid, node_refusal
from mig_spawner.spawner.lease import LeaseKeeper
from mig_spawner.spawner.move import Moves
from mig_spawner.spawner.options import stored
from mig_spawner.spawner.progress import Progress
from mig_spawner.spawner.waiting.handler import PATH, SCRIPT, has_handlers
from mig_spawner.spawner.waiting.room import Room, room_view
from mig_spawner.spawner.waiting.stage import pod_stage
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.menu import MenuEntry

_LOOK_S: Final = 10.0
"""How old the counts of the room may be."""
_KNOCK_S: Final = 0.5
_in_line: PerHub[WeakSet[LeaseKeeper]] = PerHub(WeakSet)
"""Everybody who stands in line in this hub."""


class Guest:
    """The part of `MIGSpawner` that waits."""

    start_check: bool
    http_timeout: int
    waiting_limit: int
    mig_profile: str
    user: Any
    user_options: Any
    orm_spawner: Any
    hub: Any
    name: str
    _keeper: LeaseKeeper
    _progress: Progress
    _moves: Moves
    _entry: MenuEntry | None
    _offered: tuple[MenuEntry, ...] = ()
    _free: Availability | None = None
    _availability: Callable[..., Awaitable[Availability | None]]
    _pod_seen: Callable[[], dict[str, Any] | None]
    _choose: Callable[..., Awaitable[MenuEntry]]

    def mig_room(self) -> Room:
        """What the page of a pending start shows; for its template."""
        path = [self.user.escaped_name, *([url_escape_path(self.name)] if self.name else [])]
        here = JupyterHub.initialized() and has_handlers(JupyterHub.instance())
        return room_view(
            [*self._progress.told, *self._moves.progress.told],
            entry=self._entry,
            offered=() if self.mig_profile else self._offered,
            availability=self._free,
            waits=self._keeper.waits,
            checked=self.start_check,
            action=url_path_join(self.hub.base_url, PATH, *path) if here else "",
            script=url_path_join(self.hub.base_url, SCRIPT),
            form=url_path_join(self.hub.base_url, "spawn", *path),
        )

    async def mig_change(self, choice: object) -> None:
        """Ask for something else while waiting, or go on without a GPU. The hub remembers it as the choice of this server.

        Raises:
            SpawnRefused: it cannot be had, or the server waits no more.
        """
        if not self._keeper.waits or self.mig_profile:
            raise invalid("This server waits in line no more, or its profile decides, so nothing can be changed.")
        entry = await self._choose(choice, self.user_options, word="")
        before, self._entry = self._entry, entry
        try:
            await self._keeper.change(entry)
        except SpawnRefused:
            self._entry = before
            raise
        self.user_options = {**(self.user_options or {}), **stored(entry)}
        self.orm_spawner.user_options = self.user_options

    def _stand_in_line(self) -> None:
        """It comes to waiting: see that not too many do. Whoever waits counts in the hub's `concurrent_spawn_limit`.

        Raises:
            SpawnRefused: too many wait.
        """
        limit, waiting = (
            self._waiting_limit(),
            sum(keeper.waits for keeper in _in_line.here() if keeper is not self._keeper),
        )
        if limit and waiting >= limit:
            raise SpawnRefused(
                f"{waiting} servers of this hub wait for a GPU already, which is as many as may. Try again later, choose another size, "
                "or start without a GPU.",
                reason=Reason.CAPACITY,
                status_code=429,
            )
        _in_line.here().add(self._keeper)

    def _waiting_limit(self) -> int:
        if self.waiting_limit >= 0:
            return self.waiting_limit
        hubs = int(self.user.settings.get("concurrent_spawn_limit") or 0)
        return max(hubs // 2, 1) if hubs else 0

    async def _watch_free(self) -> None:
        """While in line, know what else could be had."""
        while True:
            if self._keeper.waits:
                self._free = await self._availability(self._keeper.lease_id)
            await asyncio.sleep(_LOOK_S if self._free is not None else 1.0)

    def _tell_stage(self) -> None:
        """Say what the pod says of its start.

        Raises:
            SpawnRefused: its node did not take it, or the check in it found something else than what was leased.
        """
        pod = self._pod_seen()
        if (refusal := node_refusal(pod)) is not None:
            raise refusal
        if self.start_check and (fault := fault_of(pod)) is not None:
            raise SpawnRefused(
                f"The GPU of this server is not the leased one, so it was not opened. {fault} Try again, or tell an admin of this hub.",
                reason=Reason.CHECK,
            )
        found = pod_stage(pod, checked=self.start_check)
        if found is not None:
            stage, message = found
            if message not in self._moves.progress.messages:
                self._moves.progress.say(message, 40, stage)

    async def _see_it_checked(self, url: str) -> None:
        """The container runs: wait until its check is over, which is when the server listens.

        Raises:
            SpawnRefused: the check failed.
        """
        address = urlsplit(url)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.http_timeout  # the hub waits as long for an answer, and says so if there is none
        while loop.time() < until:
            self._tell_stage()
            try:
                async with asyncio.timeout(_KNOCK_S):
                    _, writer = await asyncio.open_connection(address.hostname, address.port)
            except (OSError, TimeoutError):
                await asyncio.sleep(_KNOCK_S)
                continue
            writer.close()
            return
