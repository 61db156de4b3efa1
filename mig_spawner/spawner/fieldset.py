"""Our fieldset in the spawn form: what may be chosen, what of it is free, and how the page stays up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from mig_spawner.domain.rule import Person
from mig_spawner.errors import AllocatorError
from mig_spawner.spawner.allowance import Own
from mig_spawner.spawner.form import FormView, Live, form_view, render_form
from mig_spawner.spawner.lease import LeaseKeeper
from mig_spawner.spawner.menu import MAX_NAME, UserMenu, groups_of, user_menu
from mig_spawner.spawner.options import KEY
from mig_spawner.spawner.profile import Beside, Profile, bound
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.client import AllocatorClient
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.seen import SeenMenu


class FormOfMenu:
    """The part of `MIGSpawner` that shows the form. It goes before `KubeSpawner`, whose form comes first on the page."""

    allocator_public_url: str
    live_interval: float
    template_paths: list[str]
    mig_menu: Menu
    log: Any
    hub: Any
    user: Any
    user_options: Any
    _log_name: str
    _suggested: str | None
    _keeper: LeaseKeeper

    slices_beside_profiles: Beside
    # Not methods here: those of the other parts of the class would be hidden by them.
    _client: Callable[[], AllocatorClient]
    _profiles: Callable[[], Awaitable[Sequence[Profile]]]
    _resolve: Callable[[object], object]

    async def get_options_form(self) -> str:
        """The admin's form, whatever it is, and our fieldset after it. It always renders."""
        try:
            form = await super().get_options_form() or ""  # type: ignore[misc]  # KubeSpawner's
        except Exception:
            self.log.exception("The profiles of %s could not be shown", self._log_name)
            form = '<p class="alert alert-warning">The list of server profiles cannot be shown now.</p>'
        try:
            return f"{form}{render_form(await self._form_view(), self.template_paths)}"
        except Exception:
            self.log.exception("The GPU choices of %s could not be shown", self._log_name)
            return f'{form}<p class="alert alert-warning">GPU choices cannot be shown now; the usual one is taken.</p>'

    async def _form_view(self) -> FormView:
        availability, seen, live = await asyncio.gather(self._availability(), self._seen_menu(), self._live())
        offered = self._user_menu(seen, availability)
        options = self.user_options if isinstance(self.user_options, dict) else {}
        saved, self._suggested = self._suggested or options.get(KEY), None
        over = self._keeper.over
        found = bound(await self._profiles(), self._resolve)
        return form_view(
            offered.menu,
            availability,
            saved=saved,
            live=live,
            refusals=offered.refusals,
            bound=found,
            beside=self.slices_beside_profiles != "none",
            own=Own.of(seen),
            ended="" if over is None else f"Your last server lost its GPU. {over.ending}",
            assets=self._public_url(),
        )

    def _user_menu(self, seen: SeenMenu | None, availability: Availability | None) -> UserMenu:
        person = Person(self._user_name, frozenset(groups_of(self.user)))
        return user_menu(self.mig_menu, seen, availability, person, datetime.now(UTC))

    @property
    def _user_name(self) -> str:
        return str(self.user.name)[:MAX_NAME]

    async def _seen_menu(self) -> SeenMenu | None:
        try:
            return await self._client().menu(user=self._user_name, groups=groups_of(self.user))
        except AllocatorError as error:
            self.log.warning("What %s may have of the allocator's menu is not known: %s", self._log_name, error)
            return None

    async def _availability(self, without: str | None = None) -> Availability | None:
        """What is free, as if the lease `without` did not wait; None where that is not known."""
        try:
            return await self._client().availability(without=without)
        except AllocatorError as error:
            self.log.warning("What is free on the GPUs is not known: %s", error)
            return None

    async def _live(self) -> Live | None:
        if not self.live_interval:
            return None
        try:
            ticket = await self._client().ticket(self._user_name)
        except AllocatorError:
            return None
        return Live(self._public_url(), ticket.ticket, self.live_interval)

    def _public_url(self) -> str:
        url: str = self.allocator_public_url.rstrip("/")
        if not url.startswith("/"):
            return url
        return f"{self.hub.base_url.rstrip('/').removesuffix('/hub')}{url}"
