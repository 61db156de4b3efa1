"""The admin's profiles, as far as slices go: which of them bring a slice, and which of them go with the choices of the form.

    kubespawner_override: {mig_profile: 1g.10gb}     a profile, or a choice of one of its options, brings its slice along
    mig: {allow: [small, 3g.40gb]}                   beside the profile only these choices of the form can be had
    mig: true | false                                all of them; none of them

Pure: profile lists as KubeSpawner initialises them and user options in, words out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidProfile, InvalidRequest
from mig_spawner.spawner.options import choose
from mig_spawner.wire.menu import Menu, MenuEntry

TRAIT: Final = "mig_profile"
TAG: Final = "mig"

Beside = Literal["all", "tagged", "none"]
Profile = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tag:
    """What the form may offer beside one profile: `allowed` choices, None for all of them. No GPU can always be had."""

    allowed: tuple[str, ...] | None = ()

    @classmethod
    def of(cls, profile: Profile | None, beside: Beside) -> Tag:
        """The tag of a profile; of one without a tag, and where there is no profile, it depends on `slices_beside_profiles`.

        Raises:
            InvalidRequest: it is none that we know.
        """
        if beside == "none":
            return cls()
        said = None if profile is None else profile.get(TAG)
        match said:
            case None:
                return cls(None) if beside == "all" or profile is None else cls()
            case True:
                return cls(None)
            case False:
                return cls()
            case {"allow": [*items], **rest} if not rest and all(isinstance(i, str) for i in items):
                return cls(tuple(items))
            case _:
                raise InvalidRequest(
                    f"The profile {_name(profile)!r} has a `{TAG}` that says nothing known; write `{TAG}: true`, `{TAG}: false` or "
                    f"`{TAG}: {{allow: [small-slice]}}`. Please tell an admin of this hub."
                )

    def admits(self, entry: MenuEntry, menu: Menu) -> bool:
        """Whether a choice can be had beside the profile."""
        if entry.none or self.allowed is None:
            return True
        return any(found.id == entry.id for found in self._entries(menu))

    def _entries(self, menu: Menu) -> Iterator[MenuEntry]:
        for word in self.allowed or ():
            try:
                yield choose(word, menu)
            except InvalidRequest:
                continue  # not on the menu now


@dataclass(frozen=True, slots=True)
class Bound:
    """A profile, or a choice of one of its options, that brings a slice: its name for people, and what `mig_profile` says."""

    name: str
    word: str


def selected(profiles: Sequence[Profile], options: Mapping[str, Any]) -> Profile | None:
    """The profile that these options choose, the default one for none; None where there are no profiles, or not this one."""
    slug = options.get("profile")
    if not slug:
        return next((p for p in profiles if p.get("default")), None)
    return next((p for p in profiles if p.get("slug") == slug), None)


def word_of(profile: Profile | None, options: Mapping[str, Any], resolve: Callable[[object], object]) -> str:
    """What `mig_profile` will be once KubeSpawner has applied the profile and the choices of its options; empty if nothing sets it.

    Args:
        resolve: calls a value that is a function, as KubeSpawner does.
    """
    if profile is None:
        return ""
    overrides = [profile.get("kubespawner_override")]
    for name, option in (profile.get("profile_options") or {}).items():
        unlisted, choices = options.get(f"{name}--unlisted-choice"), option.get("choices") or {}
        if unlisted:
            overrides.append((option.get("unlisted_choice") or {}).get("kubespawner_override"))
        elif isinstance(chosen := options.get(name), str) and chosen:
            overrides.append((choices.get(chosen) or {}).get("kubespawner_override"))
        else:
            overrides += [c.get("kubespawner_override") for c in choices.values() if c.get("default")][:1]
    words = [resolve(o[TRAIT]) for o in overrides if isinstance(o, Mapping) and TRAIT in o]
    return str(words[-1] or "") if words else ""


def bound(profiles: Sequence[Profile], resolve: Callable[[object], object]) -> tuple[Bound, ...]:
    """Everything in the profiles that brings a slice, in their order."""
    return tuple(_bound(profiles, resolve))


def _bound(profiles: Sequence[Profile], resolve: Callable[[object], object]) -> Iterator[Bound]:
    for profile in profiles:
        yield from _bringing(_name(profile), profile, resolve)
        for option in (profile.get("profile_options") or {}).values():
            for choice in (option.get("choices") or {}).values():
                yield from _bringing(f"{_name(profile)}, {_name(choice)}", choice, resolve)


def _bringing(name: str, item: Profile, resolve: Callable[[object], object]) -> Iterator[Bound]:
    override = item.get("kubespawner_override")
    if isinstance(override, Mapping) and (word := str(resolve(override.get(TRAIT)) or "")):
        yield Bound(name, word)


def entry_of(word: str, menu: Menu) -> MenuEntry:
    """What a `mig_profile` stands for: an entry of the menu by its id or its MIG profile, else just this MIG profile.

    What an admin wrote into a profile may be had although it is not on the menu.

    Raises:
        InvalidRequest: it is none of these.
    """
    try:
        return choose(word, menu)
    except InvalidRequest:
        if word == "none":
            return MenuEntry(id="none", display_name="No GPU", none=True)
        if word == "whole":
            return MenuEntry(id="whole", display_name="Whole GPU", whole=True)
        try:
            name = str(ProfileName.parse(word))
        except InvalidProfile as error:
            raise InvalidRequest(
                f"The profile of this server names the slice {word[:60]!r}, which is neither a MIG profile such as 1g.10gb nor on the "
                "menu. Please tell an admin of this hub."
            ) from error
        return MenuEntry(id=name, display_name=name, profile=name)


def reconcile(value: object, word: str, tag: Tag, menu: Menu) -> MenuEntry:
    """What is started: the choice of the form, beside a profile that may bring a slice of its own.

    Args:
        value: the option as somebody gave it; None and "" for no choice.
        word: `mig_profile` as the profile has it; empty if it brings none.

    Raises:
        InvalidRequest: the two contradict each other, or the choice cannot be had beside this profile, or not at all.
    """
    unsaid = value in (None, "", {})
    if word:
        entry = entry_of(word, menu)
        try:
            chosen = None if unsaid else choose(value, menu)
        except InvalidRequest:
            chosen = None  # a saved choice that is no more: the profile decides anyway
        if chosen is None or chosen.none or chosen.id == entry.id or chosen is menu.default:
            return entry
        raise InvalidRequest(
            f"The profile of this server comes with {entry.display_name}, and {chosen.display_name} was chosen beside it. "
            "Choose no GPU in the list of slices, or another profile."
        )
    entry = choose(value, menu)
    if tag.admits(entry, menu):
        return entry
    if unsaid and menu.none is not None:
        return menu.none
    allowed = [e.display_name for e in menu if tag.admits(e, menu)]
    raise InvalidRequest(
        f"{entry.display_name} does not go with this profile. With it you may have: {_listed(allowed)}."
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "no GPU"


def _name(item: Profile | None) -> str:
    return str((item or {}).get("display_name") or "a profile without a name")
