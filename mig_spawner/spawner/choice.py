"""How a choice gets to a spawner: from a form, a link, a script or the last start, beside or inside a profile of the admin's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jupyterhub.utils import maybe_future
from traitlets import TraitError

from mig_spawner.errors import InvalidRequest
from mig_spawner.spawner.error import Reason, SpawnRefused, invalid, refusing
from mig_spawner.spawner.menu import UserMenu
from mig_spawner.spawner.options import KEY, stored, take
from mig_spawner.spawner.profile import Beside, Profile, Tag, reconcile, selected, word_of
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.menu import Menu, MenuEntry
from mig_spawner.wire.menu.seen import SeenMenu

_BY_LINK = "A GPU slice is not started by a link alone. "
_SELECTED = "It is selected below: press Start to have it."
_OF_PROFILE = "Select the profile below that comes with it, and press Start."


class ChoiceOfSlice:
    """The part of `MIGSpawner` that reads choices. It goes before `KubeSpawner`, whose profiles are read first."""

    profile_list: Any
    mig_menu: Menu
    mig_profile: str
    slices_beside_profiles: Beside
    slices_by_link: bool
    user_options: Any
    log: Any
    _log_name: str
    _suggested: str | None
    _offered: tuple[MenuEntry, ...]
    _availability: Callable[[], Awaitable[Availability | None]]
    _seen_menu: Callable[[], Awaitable[SeenMenu | None]]
    _user_menu: Callable[[SeenMenu | None, Availability | None], UserMenu]

    async def run_options_from_form(self, form_data: dict[str, Any]) -> dict[str, Any]:
        """Our field becomes `{"mig": {"choice": id}}`; the rest is for the admin's or KubeSpawner's own reading."""
        with refusing():
            value, rest = take(form_data)
        options = await maybe_future(super().run_options_from_form(rest))  # type: ignore[misc]  # KubeSpawner's
        return {**options, **stored(await self._choose(value, options))}

    async def options_from_query(self, query_data: dict[str, Any]) -> dict[str, Any]:
        """As a form, but from a link that may have been opened unawares; see `slices_by_link`."""
        with refusing():
            value, rest = take(query_data)
        options = await maybe_future(super().options_from_query(rest))  # type: ignore[misc]  # KubeSpawner's
        entry = await self._choose(value, options)
        if not entry.none and not self.slices_by_link:
            beside = self.mig_menu.get(entry.id) is not None or not len(self.mig_menu)
            self._suggested = entry.id if beside else None
            raise invalid(_BY_LINK + (_SELECTED if beside else _OF_PROFILE))
        return {**options, **stored(entry)}

    async def load_user_options(self) -> None:
        """Profiles first; what of them cannot be had is refused with a sentence and not counted as a fault of the hub."""
        try:
            await super().load_user_options()  # type: ignore[misc]  # KubeSpawner's
        except (ValueError, KeyError, TypeError, TraitError) as error:
            if not self.user_options:
                raise  # nobody chose anything: the configuration is wrong
            self.log.warning("The options of %s were refused: %r", self._log_name, error)
            raise invalid(_profile_sentence(error)) from error

    async def _chosen(self) -> MenuEntry:
        """What the loaded options stand for."""
        return await self._choose(self.user_options.get(KEY), self.user_options, word=self.mig_profile)

    async def _choose(self, value: object, options: Any, *, word: str | None = None) -> MenuEntry:
        """What a choice stands for beside the profile that was chosen with it.

        Args:
            word: `mig_profile` where the profile has been applied; otherwise what it will be is worked out.

        Raises:
            SpawnRefused: it cannot be had.
        """
        profiles = await self._profiles()
        profile = selected(profiles, options if isinstance(options, dict) else {})
        if word is None:
            word = word_of(profile, options, self._resolve) or self.mig_profile
        unsaid = value in (None, "", {})
        seen = await self._seen_menu()
        live = not word and not len(self.mig_menu) and (seen is None or not seen.entries)
        availability = await self._availability() if live and not unsaid and value != "none" else None
        offered = self._user_menu(seen, availability)
        try:
            tag = Tag.of(profile, self.slices_beside_profiles)
            entry = reconcile(value, word, tag, offered.usual if unsaid and not word else offered.menu)
        except InvalidRequest as error:
            if live and availability is None:
                raise SpawnRefused(
                    "The GPU allocator does not answer, so GPU choices cannot be started now. Start without a GPU, or try again soon.",
                    reason=Reason.ALLOCATOR_DOWN,
                ) from error
            raise invalid(str(error)) from error
        self._offered = tuple(e for e in offered.usual if tag.admits(e, offered.menu))
        refusal = offered.refusals.get(entry.id)
        if refusal:
            contact = f" Ask {offered.menu.contact}." if offered.menu.contact else ""
            raise invalid(f"{entry.display_name} is not to be had for you. {refusal}{contact}")
        return entry

    async def _profiles(self) -> Sequence[Profile]:
        """The admin's profiles as KubeSpawner initialises them; none where they cannot be listed, which it says itself."""
        try:
            profiles = self.profile_list
            if callable(profiles):
                profiles = await maybe_future(profiles(self))
            if isinstance(profiles, dict):
                profiles = self._sorted_dict_values(profiles)  # type: ignore[attr-defined]  # KubeSpawner's
            return self._get_initialized_profile_list(profiles) or ()  # type: ignore[attr-defined]  # likewise
        except Exception as error:
            self.log.warning("The profiles of %s cannot be listed: %r", self._log_name, error)
            return ()

    def _resolve(self, value: object) -> object:
        return value(self) if callable(value) else value


def _profile_sentence(error: Exception) -> str:
    text = f"no choice is called {error}" if isinstance(error, KeyError) else str(error)
    return f"The chosen profile cannot be started: {text[:300]}"
