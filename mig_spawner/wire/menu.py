"""The menu: what people may have, as an admin writes it in YAML or in the hub's configuration.

    - display_name: No GPU
      none: true
    - display_name: Small slice
      profile: 1g.10gb
      mem_limit: 16G
      default: true

A list of entries, or a mapping from id to entry. Each says exactly one of `profile`, `min_memory` (GB), `whole: true` and
`none: true`. Ids are what links, scripts and saved choices hold on to: without one an entry is known by a slug of its display name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidProfile, InvalidRequest
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.base import Document

MAX_ENTRIES: Final = 200
_ID: Final = re.compile(r"[a-z0-9](?:[a-z0-9._+-]{0,61}[a-z0-9])?")
_BYTES: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?)(?:i?B?|i)")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_KINDS: Final = ("profile", "min_memory", "whole", "none")


def parse_bytes(value: object) -> object:
    """Read `16G` as KubeSpawner does: K, M, G and T are units of 1024; a plain number is bytes. Anything else passes unread."""
    if isinstance(value, str) and (match := _BYTES.fullmatch(value.strip())) is not None:
        return int(float(match["number"]) * _UNITS[match["unit"]])
    return value


def _number(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(strict=True, gt=0, lt=1 << 53)]
Cores = Annotated[float, BeforeValidator(_number), Field(strict=True, gt=0, le=4096, allow_inf_nan=False)]
Gigabytes = Annotated[float, BeforeValidator(_number), Field(strict=True, gt=0, le=10_000, allow_inf_nan=False)]
Duration = Annotated[float, BeforeValidator(_number), Field(strict=True, gt=0, le=366 * 86400, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]


class MenuEntry(Document):
    """One thing on the menu.

    Attributes:
        id: lower-case letters, digits and `._+-`; at most 63 characters.
        profile: this MIG profile; `min_memory`: any slice with so many GB; `whole`: a GPU that is not cut; `none`: no GPU.
        cpu_limit, cpu_guarantee: cores of the host.
        mem_limit, mem_guarantee, shm: bytes of the host. What is written to `/dev/shm` counts within `mem_limit`.
        duration: how long a server may keep the slice, seconds; without it, as long as it runs.
        default: taken when nobody chose.
    """

    id: str
    display_name: Annotated[str, Field(strict=True, min_length=1, max_length=200)]
    description: Annotated[str, Field(strict=True, max_length=2000)] = ""
    profile: str | None = None
    min_memory: Gigabytes | None = None
    whole: Flag = False
    none: Flag = False
    cpu_limit: Cores | None = None
    cpu_guarantee: Cores | None = None
    mem_limit: Bytes | None = None
    mem_guarantee: Bytes | None = None
    shm: Bytes | None = None
    duration: Duration | None = None
    default: Flag = False

    @field_validator("id")
    @classmethod
    def _an_id(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError(f"the id {value!r} must be 1 to 63 of a-z, 0-9 and ._+-, for example small-slice")
        return value

    @field_validator("profile")
    @classmethod
    def _a_profile(cls, value: str | None) -> str | None:
        try:
            return None if value is None else str(ProfileName.parse(value))
        except InvalidProfile as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _consistent(self) -> MenuEntry:
        kinds = [k for k in _KINDS if getattr(self, k) not in (None, False)]
        if len(kinds) != 1:
            said = "nothing" if not kinds else " and ".join(kinds)
            raise ValueError(
                f"it says {said}; write exactly one of `profile: 1g.10gb`, `min_memory: 12`, `whole: true` or `none: true`"
            )
        for limit, part in (("cpu_limit", "cpu_guarantee"), ("mem_limit", "mem_guarantee"), ("mem_limit", "shm")):
            most, least = getattr(self, limit), getattr(self, part)
            if most is not None and least is not None and least > most:
                raise ValueError(f"{part} is more than {limit}; lower {part} or raise {limit}")
        if self.none and self.duration is not None:
            raise ValueError("a duration is for slices; remove `duration` beside `none: true`")
        return self

    @property
    def mig_profile(self) -> ProfileName | None:
        return None if self.profile is None else ProfileName.parse(self.profile)

    @property
    def request(self) -> Request | None:
        """What to ask the allocator for; None without a GPU."""
        if self.none:
            return None
        if self.profile is not None:
            return SliceRequest(ProfileName.parse(self.profile))
        return WholeRequest() if self.min_memory is None else MemoryRequest(self.min_memory)


class Menu:
    """The entries in the admin's order. An empty menu stands for "whatever the allocator offers", see `live_menu`."""

    def __init__(self, entries: Sequence[MenuEntry] = ()) -> None:
        self.entries = tuple(entries)
        self._by_id = {e.id: e for e in self.entries}

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

    @classmethod
    def parse(cls, value: object) -> Menu:
        """Read what an admin wrote.

        Raises:
            InvalidRequest: with a sentence that names the entry and says what to write instead.
        """
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
            raise InvalidRequest(
                f"Menu {defaults[0]} and {defaults[1]} both say `default: true`. Keep it in one of them."
            )
        return cls(entries)


def live_menu(availability: Availability | None) -> Menu:
    """The menu of a hub that has none: no GPU, and each profile that the allocator offers now."""
    entries = [MenuEntry(id="none", display_name="No GPU", none=True, default=True)]
    names = sorted(ProfileName.parse(o.profile) for o in availability.offers if o.profile) if availability else []
    entries += [MenuEntry(id=str(n), display_name=str(n), profile=str(n)) for n in names]
    return Menu(entries)


def slug(text: str) -> str:
    """A display name as an id: `Small slice (10 GB)` becomes `small-slice-10-gb`; empty if nothing of it can be kept."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:63].strip("-.")


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
    known = list(MenuEntry.model_fields)
    for key in fields:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"an entry may have {', '.join(known)}."
            raise InvalidRequest(f"Menu {name}: the key {key!r} is not known; {hint}")
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
        raise InvalidRequest(f"Menu {name}: {_explained(error)}") from error


_HINTS: Final = {
    **dict.fromkeys(("mem_limit", "mem_guarantee", "shm"), "write bytes, or a number with K, M, G or T such as 16G"),
    **dict.fromkeys(("cpu_limit", "cpu_guarantee"), "write a number of cores such as 2 or 0.5"),
    **dict.fromkeys(("whole", "none", "default"), "write true or leave it out"),
    "profile": "write a MIG profile such as 1g.10gb",
    "min_memory": "write a number of GB such as 12",
    "duration": "write seconds, for example 28800 for eight hours",
    "id": "write a short text such as small-slice",
    "display_name": "write a text of 1 to 200 characters",
    "description": "write a text of at most 2000 characters",
}


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["msg"]).removeprefix("Value error, ").rstrip(".") + "."
    field = str(first["loc"][0])
    return f"`{field}` cannot be {str(first['input'])[:60]!r}; {_HINTS[field]}."
