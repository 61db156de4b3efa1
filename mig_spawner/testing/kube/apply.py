"""Server-side apply: fields belong to whoever applied them, and two appliers who disagree get a conflict.

Ownership is kept where the real server keeps it, in `metadata.managedFields` as `fieldsV1`. Only appliers own fields
here; what was written by create, update or the other patches belongs to nobody and can be applied over.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from mig_spawner.testing.kube.errors import StatusError
from mig_spawner.testing.kube.patches import is_set, merge_key, strategic_merge
from mig_spawner.testing.kube.resources import Manifest

Fields = dict[str, Any]
"""A tree of owned fields, `{"f:spec": {"f:nodeName": {}}}`. A leaf is empty."""

_UNOWNED = (
    {"apiVersion", "kind"},
    {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"},
)


def server_side_apply(current: Manifest | None, config: Manifest, manager: str, *, force: bool, now: str) -> Manifest:
    """The object after `manager` applied `config`. Raises `StatusError` 409 for fields that others applied differently,
    unless `force` takes them over."""
    before: Manifest = current or {}
    entries: list[Manifest] = list(before.get("metadata", {}).get("managedFields") or [])
    mine = next((entry for entry in entries if _is_of(entry, manager)), None)
    others = [entry for entry in entries if entry is not mine and entry.get("operation") == "Apply"]
    wanted = _owned_fields(config)

    contested = {
        path: entry["manager"]
        for entry in others
        for path in _paths(_intersection(entry["fieldsV1"], wanted))
        if _read(before, path) != _read(config, path)
    }
    if contested and not force:
        raise _conflict(contested)
    if contested:
        others = [{**entry, "fieldsV1": _difference(entry["fieldsV1"], wanted)} for entry in others]

    given_up = _difference(mine["fieldsV1"], wanted) if mine else {}
    for entry in others:
        given_up = _difference(given_up, entry["fieldsV1"])
    after = copy.deepcopy(before)
    for path in _paths(given_up):
        _remove(after, path)
    after = strategic_merge(after, config)

    updates = [entry for entry in entries if entry.get("operation") != "Apply"]
    own = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": config.get("apiVersion", ""),
        "time": mine["time"] if mine and mine["fieldsV1"] == wanted else now,
        "fieldsType": "FieldsV1",
        "fieldsV1": wanted,
    }
    after.setdefault("metadata", {})["managedFields"] = [own, *others, *updates]
    return after


def _is_of(entry: Manifest, manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply"


def _conflict(contested: dict[tuple[str, ...], str]) -> StatusError:
    count = len(contested)
    named = [(f'conflict with "{owner}"', _shown(path)) for path, owner in contested.items()]
    causes = [{"reason": "FieldManagerConflict", "message": text, "field": field} for text, field in named]
    message = ", ".join(f"{text}: {field}" for text, field in named)
    return StatusError(
        409, "Conflict", f"Apply failed with {count} conflict{'s' * (count > 1)}: {message}", {"causes": causes}
    )


def _owned_fields(config: Manifest) -> Fields:
    fields = {f"f:{key}": _fields_of(key, value) for key, value in config.items() if key not in _UNOWNED[0]}
    metadata = fields.get("f:metadata", {})
    for key in _UNOWNED[1]:
        metadata.pop(f"f:{key}", None)
    if not metadata:
        fields.pop("f:metadata", None)
    return fields


def _fields_of(field: str, value: Any) -> Fields:
    if isinstance(value, dict):
        return {f"f:{key}": _fields_of(key, item) for key, item in value.items()}
    if isinstance(value, list) and is_set(field):
        return {f"v:{json.dumps(item)}": {} for item in value}
    if isinstance(value, list) and value and (key := merge_key(field, value)):
        return {f"k:{json.dumps({key: item[key]})}": {".": {}, **_fields_of("", item)} for item in value}
    return {}


def _intersection(one: Fields, other: Fields) -> Fields:
    """The fields that are in both; a map that both own, but with nothing in common below it, is in neither."""
    both: Fields = {}
    for key in one.keys() & other.keys():
        below = _intersection(one[key], other[key])
        if below or not (one[key] or other[key]):
            both[key] = below
    return both


def _difference(one: Fields, other: Fields) -> Fields:
    left: Fields = {}
    for key, fields in one.items():
        if key not in other:
            left[key] = fields
        elif fields and (rest := _difference(fields, other[key])):
            left[key] = rest
    return left


def _paths(fields: Fields, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The leaves. An item of a list that goes as a whole (it has the mark `.`) is one leaf."""
    for key, below in sorted(fields.items()):
        if key == ".":
            continue
        if not below or (key.startswith("k:") and "." in below):
            yield (*prefix, key)
        if below:
            yield from _paths(below, (*prefix, key))


def _shown(path: tuple[str, ...]) -> str:
    parts = (f".{part[2:]}" if part.startswith("f:") else f"[{part[2:]}]" for part in path)
    return "".join(parts)


def _step(value: Any, part: str) -> Any:
    kind, _, name = part.partition(":")
    if kind == "f":
        return value.get(name) if isinstance(value, dict) else None
    wanted = json.loads(name)
    if not isinstance(value, list):
        return None
    if kind == "v":
        return wanted if wanted in value else None
    return next((item for item in value if wanted.items() <= item.items()), None)


def _read(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = _step(value, part)
    # An item of a list stands for itself here; what is in it has paths of its own.
    return path[-1] if path[-1].startswith("k:") and value is not None else value


def _remove(obj: Manifest, path: tuple[str, ...]) -> None:
    parent: Any = obj
    for part in path[:-1]:
        parent = _step(parent, part)
    last = path[-1]
    if isinstance(parent, dict):
        parent.pop(last[2:], None)
    elif isinstance(parent, list) and (item := _step(parent, last)) is not None:
        parent.remove(item)
