"""The menu as a whole, and how what an admin wrote becomes one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.quota import QuotaRule
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.menu.entry import MenuEntry
from mig_spawner.wire.menu.quota import QuotaEntry

MAX_ENTRIES: Final = 200
_PARTS: Final = ("entries", "quotas", "contact", "currency", "timezone")
MAX_QUOTAS: Final = 200
MAX_TEXT: Final = 200


@dataclass(frozen=True)
class Menu:
    """The entries in the admin's order. A hub's empty menu stands for "whatever the allocator offers", see `live_menu`.

    Attributes:
        contact: whom to ask for more; a sentence or an address, empty for nobody.
        currency: of the prices.
        zone: in which days and hours are meant.
        quotas: how much may be had. Only the allocator looks at them.
    """

    entries: Sequence[MenuEntry] = ()
    contact: str = ""
    currency: str = ""
    zone: tzinfo = UTC
    quotas: tuple[QuotaRule, ...] = ()
    _by_id: dict[str, MenuEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(self.entries))
        object.__setattr__(self, "_by_id", {e.id: e for e in self.entries})

    def __iter__(self) -> Iterator[MenuEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, entry_id: str) -> MenuEntry | None:
        return self._by_id.get(entry_id)

    @property
    def default(self) -> MenuEntry | None:
        """The entry marked so, or the first; None for an empty menu."""
        return next((e for e in self.entries if e.default), self.entries[0] if self.entries else None)

    @property
    def none(self) -> MenuEntry | None:
        """The first entry without a GPU."""
        return next((e for e in self.entries if e.none), None)

    def clock(self, now: datetime) -> datetime:
        """A moment as the menu's zone shows it."""
        return now.astimezone(self.zone)

    @classmethod
    def parse(cls, value: object) -> Menu:
        """Read what an admin wrote: entries alone, or `entries` and what holds for all of them.

        Raises:
            InvalidRequest: with a sentence that names the entry and says what to write instead.
        """
        whole = isinstance(value, Mapping) and not {"entries", "quotas"}.isdisjoint(value)
        parts: Mapping[Any, Any] = value if whole and isinstance(value, Mapping) else {"entries": value}
        for key in parts:
            if key not in _PARTS:
                raise InvalidRequest(f"The menu has no part {str(key)[:60]!r}{_near(key, _PARTS, 'it may have ')}")
        contact = _text(parts, "contact")
        return cls(
            _parsed_entries(parts.get("entries")),
            quotas=tuple(rule for quota in _quotas(parts.get("quotas")) for rule in quota.rules(contact)),
            contact=contact,
            currency=_text(parts, "currency"),
            zone=_zone(parts),
        )


def live_menu(availability: Availability | None) -> Menu:
    """The menu of a hub that has none: no GPU, and each profile that the allocator offers now."""
    entries = [MenuEntry(id="none", display_name="No GPU", none=True, default=True)]
    names = sorted(ProfileName.parse(o.profile) for o in availability.offers if o.profile) if availability else []
    entries += [MenuEntry(id=str(n), display_name=str(n), profile=str(n)) for n in names]
    return Menu(entries)


def slug(text: str) -> str:
    """A display name as an id: `Small slice (10 GB)` becomes `small-slice-10-gb`; empty if nothing of it can be kept."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:63].strip("-.")


def _text(parts: Mapping[Any, Any], name: str) -> str:
    value = parts.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise InvalidRequest(f"The menu's `{name}` is one line of at most {MAX_TEXT} characters.")
    return value


def _zone(parts: Mapping[Any, Any]) -> tzinfo:
    name = _text(parts, "timezone")
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidRequest(
            f"The menu's `timezone` {name[:60]!r} is not known here. Write one such as Europe/Berlin, or UTC."
        ) from error


def _parsed_entries(value: object) -> list[MenuEntry]:
    raw = _entries(value)
    if len(raw) > MAX_ENTRIES:
        raise InvalidRequest(f"The menu has {len(raw)} entries; at most {MAX_ENTRIES} can be shown.")
    entries: list[MenuEntry] = []
    names: dict[str, str] = {}
    for name, fields in raw:
        entry = _entry(name, fields)
        if entry.id in names:
            raise InvalidRequest(
                f"Menu {names[entry.id]} and {name} have the same id {entry.id!r}. Give one of them an `id` of its own."
            )
        names[entry.id] = name
        entries.append(entry)
    defaults = [names[e.id] for e in entries if e.default]
    if len(defaults) > 1:
        raise InvalidRequest(f"Menu {defaults[0]} and {defaults[1]} both say `default: true`. Keep it in one of them.")
    return entries


def _entries(value: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Pairs of how to call an entry in a message, and its fields with an id."""
    pairs: list[tuple[str, object]]
    if value is None:
        return []
    if isinstance(value, Mapping):
        pairs = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [("", v) for v in value]
    else:
        raise InvalidRequest(
            f"The menu is a list of entries or a mapping from id to entry, not {type(value).__name__}."
        )
    result: list[tuple[str, Mapping[str, Any]]] = []
    for number, (key, fields) in enumerate(pairs, 1):
        if not isinstance(fields, Mapping):
            raise InvalidRequest(
                f"Menu entry {key or number} must be a mapping such as `display_name: Small slice`, not {type(fields).__name__}."
            )
        shown = key or fields.get("id") or fields.get("display_name") or ""
        if key and fields.get("id", key) != key:
            raise InvalidRequest(f"Menu entry {key!r} has the id {fields['id']!r} as well. Remove one of them.")
        name = f"entry {number} ({str(shown)[:60]!r})" if shown else f"entry {number}"
        result.append((name, {**fields, "id": key} if key else fields))
    return result


def _entry(name: str, fields: Mapping[str, Any]) -> MenuEntry:
    known = [f.alias or key for key, f in MenuEntry.model_fields.items()]
    for key in fields:
        if key not in known:
            hint = _near(key, known, "an entry may have ")
            raise InvalidRequest(f"Menu {name}: the key {key!r} is not known{hint}")
    display_name = fields.get("display_name")
    if display_name is None:
        raise InvalidRequest(f"Menu {name}: `display_name` is missing. Write what people shall read in the form.")
    entry_id = fields.get("id") or (slug(display_name) if isinstance(display_name, str) else "")
    if not entry_id:
        raise InvalidRequest(
            f"Menu {name}: no id can be made of the display name. Write one, for example `id: small-slice`."
        )
    given = {key: value for key, value in fields.items() if value is not None}
    try:
        return MenuEntry.model_validate({**given, "id": entry_id})
    except ValidationError as error:
        raise InvalidRequest(f"Menu {name}: {explained(error, _HINTS)}") from error


def _quotas(value: object) -> Iterator[QuotaEntry]:
    if value is None:
        return
    if not isinstance(value, list | tuple) or len(value) > MAX_QUOTAS:
        raise InvalidRequest(
            f"The menu's `quotas` is a list of at most {MAX_QUOTAS}, such as `- per: person` with `slices: 1`."
        )
    known = list(QuotaEntry.model_fields)
    for number, fields in enumerate(value, 1):
        if not isinstance(fields, Mapping):
            raise InvalidRequest(
                f"Quota {number} of the menu must be a mapping such as `per: person` with `slices: 1`."
            )
        for key in fields:
            if key not in known:
                hint = _near(key, known, "a quota may have ")
                raise InvalidRequest(f"Quota {number} of the menu: the key {key!r} is not known{hint}")
        try:
            yield QuotaEntry.model_validate({key: v for key, v in fields.items() if v is not None})
        except ValidationError as error:
            raise InvalidRequest(f"Quota {number} of the menu: {explained(error, _QUOTA_HINTS)}") from error


def _near(key: object, known: Sequence[str], otherwise: str) -> str:
    near = difflib.get_close_matches(str(key), known, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; {otherwise}{', '.join(known)}."


_HINTS: Final = {
    **dict.fromkeys(("mem_limit", "mem_guarantee", "shm"), "write bytes, or a number with K, M, G or T such as 16G"),
    **dict.fromkeys(("cpu_limit", "cpu_guarantee"), "write a number of cores such as 2 or 0.5"),
    **dict.fromkeys(("whole", "none", "default", "hide"), "write true or leave it out"),
    **dict.fromkeys(("from", "until"), "write a day such as 2026-03-01"),
    "profile": "write a MIG profile such as 1g.10gb",
    "min_memory": "write a number of GB such as 12",
    **dict.fromkeys(("duration", "max_duration"), "write seconds, for example 28800 for eight hours"),
    "price": "write a number such as 0.5",
    "groups": "write a list of names of groups",
    "users": "write a list of names of users",
    "hours": "write a list such as [Mon-Fri 08:00-18:00, Sat-Sun]",
    "hints": "write a list of pytorch, jax and tensorflow",
    "id": "write a short text such as small-slice",
    "display_name": "write a text of 1 to 200 characters",
    "description": "write a text of at most 2000 characters",
}


_QUOTA_HINTS: Final = {
    **dict.fromkeys(("name", "contact"), "write one line of at most 200 characters"),
    "per": "write person, group or hub",
    "groups": "write a list of names of groups",
    "users": "write a list of names of users",
    "slices": "write a whole number such as 2",
    "memory_gb": "write a number of GB such as 40",
    "compute_share": "write a number of GPUs such as 0.5",
    "gpu_hours": "write a number of hours such as 20",
    "window": "write seconds, or a span such as 12h or 7d",
}


def explained(error: ValidationError, hints: Mapping[str, str]) -> str:
    """The first fault of a document as a sentence, with what to write instead."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["msg"]).removeprefix("Value error, ").rstrip(".") + "."
    name = str(first["loc"][0])
    return f"`{name}` cannot be {str(first['input'])[:60]!r}; {hints[name]}."
