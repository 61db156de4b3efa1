"""User options: from whatever a form, a link or a script sent to one entry of the menu.

Options hold the *intent* only, under the one key `mig`, since the hub keeps them and replays them at the next start:
`{"mig": {"choice": "small-slice"}}`. By hand people may write any of

    "small-slice" · "1g.10gb" · "none" · {"choice": …} · {"profile": "1g.10gb"} · {"min_memory": 12} · null

and get what the menu has for it, or a sentence. Nothing that is not on the menu can be had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidProfile, InvalidRequest
from mig_spawner.wire.menu import Menu, MenuEntry

KEY: Final = "mig"
"""The key of ours in `user_options`, and the name of the argument in links: `/hub/spawn?opt-mig=1g.10gb`."""
FIELD: Final = "mig_choice"
"""The name of the form field; its value is the id of a menu entry, or `BY_NEED`."""
BY_NEED: Final = ":need"
"""The value of the choice by need: the smallest entry with the GB in `NEED_FIELD`. No entry has such an id."""
NEED_FIELD: Final = "mig_need"

_MAX_TEXT: Final = 200
_MAX_LISTED: Final = 20
_WAYS: Final = ("choice", "profile", "min_memory")


def choose(value: object, menu: Menu) -> MenuEntry:
    """The entry of a menu that an option stands for; the default one for nothing.

    Raises:
        InvalidRequest: the option cannot be understood, or the menu has nothing for it.
    """
    match value:
        case None | "":
            return _default(menu)
        case str():
            return _by_text(value, menu)
        case Mapping():
            return _by_mapping(value, menu)
        case _:
            raise InvalidRequest(
                f"The option `{KEY}` is a text such as {_example(menu)!r} or an object such as "
                f'{{"profile": "1g.10gb"}}, not {_kind(value)}.'
            )


def stored(entry: MenuEntry) -> dict[str, Any]:
    """The form in which a choice is kept in `user_options`."""
    return {KEY: {"choice": entry.id}}


def take(data: Mapping[str, Any]) -> tuple[object, dict[str, Any]]:
    """Take our fields out of form or query data (name to list of texts): what was chosen, and all the rest for others.

    Raises:
        InvalidRequest: a field of ours came twice.
    """
    rest = dict(data)
    need = rest.pop(NEED_FIELD, None)
    values: list[object] = []
    for name in (FIELD, KEY, f"opt-{KEY}"):  # JupyterHub 5 leaves the prefix of links to the spawner
        given = rest.pop(name, None)
        if given is not None:
            values.extend(given if isinstance(given, list | tuple) else [given])
    if len(values) > 1:
        raise InvalidRequest("Choose one GPU option, not several.")
    value = values[0] if values else None
    if value is not None and not isinstance(value, str):
        raise InvalidRequest("The GPU option of a form is a text.")
    return ({"min_memory": _gigabytes(need)} if value == BY_NEED else value), rest


def _gigabytes(need: object) -> float:
    """What somebody typed as GB. A comma is a decimal point to half of the world."""
    text = need[0] if isinstance(need, list | tuple) and len(need) == 1 else need
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("Say how many GB of GPU memory you need, such as 12, or choose a size.")
    _refuse_long(text)
    try:
        return float(text.strip().replace(",", "."))
    except ValueError as error:
        raise InvalidRequest(f"{_shown(text)} is no number of GB. Write one such as 12.") from error


def _default(menu: Menu) -> MenuEntry:
    if menu.default is None:
        raise InvalidRequest("This hub offers no choice of GPU at all. Please tell its admin.")
    return menu.default


def _by_mapping(value: Mapping[Any, Any], menu: Menu) -> MenuEntry:
    given = {key: v for key, v in value.items() if v is not None}
    for key in given:
        if key not in _WAYS:
            raise InvalidRequest(f"The option `{KEY}` has no field {_shown(key)}; it has one of {', '.join(_WAYS)}.")
    if not given:
        return _default(menu)
    if len(given) > 1:
        raise InvalidRequest(f"The option `{KEY}` has one of {', '.join(_WAYS)}, not several of them.")
    if "min_memory" in given:
        return _by_memory(given["min_memory"], menu)
    [(key, text)] = given.items()
    if not isinstance(text, str):
        raise InvalidRequest(f"The field `{key}` of the option `{KEY}` is a text, not {_kind(text)}.")
    return _by_profile(text, menu) if key == "profile" else _by_text(text, menu)


def _by_text(text: str, menu: Menu) -> MenuEntry:
    _refuse_long(text)
    entry = menu.get(text)
    if entry is not None:
        return entry
    if text == "none" and menu.none is not None:
        return menu.none
    try:
        return _by_profile(text, menu)
    except InvalidProfile as error:
        raise InvalidRequest(f"{_shown(text)} is not on the menu of this hub. {_choices(menu)}") from error


def _by_profile(text: str, menu: Menu) -> MenuEntry:
    _refuse_long(text)
    name = ProfileName.parse(text)
    for entry in menu:
        if entry.mig_profile == name:
            return entry
    raise InvalidRequest(f"The slice {name} is not on the menu of this hub. {_choices(menu)}")


def _by_memory(value: object, menu: Menu) -> MenuEntry:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"The field `min_memory` is a number of GB such as 12, not {_kind(value)}.")
    if not (isinstance(value, int) or math.isfinite(value)) or not 0 < value <= 10_000:
        raise InvalidRequest("The field `min_memory` is more than 0 and at most 10000 GB.")
    sizes = [(size, entry) for entry in menu if (size := entry.size) is not None and size[0] >= value]
    if not sizes:
        raise InvalidRequest(f"No slice on the menu of this hub has {value:g} GB of GPU memory. {_choices(menu)}")
    return min(sizes, key=lambda pair: pair[0])[1]


def _refuse_long(text: str) -> None:
    if len(text) > _MAX_TEXT:
        raise InvalidRequest(f"The option `{KEY}` is {len(text)} characters long; no choice has a name that long.")


def _choices(menu: Menu) -> str:
    ids = [e.id for e in menu]
    more = ", …" if len(ids) > _MAX_LISTED else ""
    return f"Choose one of: {', '.join(ids[:_MAX_LISTED])}{more}."


def _example(menu: Menu) -> str:
    return menu.entries[0].id if menu.entries else "none"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case None:
            return "null"
        case _:
            return "an object"
