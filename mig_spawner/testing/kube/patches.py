"""The patch types of Kubernetes: from an object and a patch to the next object. Server-side apply is in `apply`."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import jsonpointer

from mig_spawner.testing.kube import errors
from mig_spawner.testing.kube.resources import Manifest

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

_MERGE_KEYS = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),  # of a container, of a service
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_MERGED_SETS = frozenset({"finalizers"})


def merge_key(field: str, items: list[Any]) -> str | None:
    """By which key the items of a list field are told apart; `None` for a list that is replaced as a whole."""
    for key in _MERGE_KEYS.get(field, ()):
        if all(isinstance(item, dict) and key in item for item in items):
            return key
    return None


def is_set(field: str) -> bool:
    """Whether a list of plain values is merged value by value."""
    return field in _MERGED_SETS


def apply_patch(content_type: str, current: Manifest, patch: Any) -> Manifest:
    """`current` with a JSON, merge or strategic merge patch applied; `current` stays as it is.

    Raises `StatusError`: 400 for a patch of the wrong shape, 422 where a JSON patch does not fit the object.
    """
    if content_type == JSON_PATCH:
        return _json_patch(current, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("a merge patch must be a JSON object")
    if content_type == MERGE_PATCH:
        merged: Manifest = merge(current, patch)
        return merged
    return strategic_merge(current, patch)


def _json_patch(current: Manifest, patch: Any) -> Manifest:
    if not isinstance(patch, list):
        raise errors.bad_request("a JSON patch must be a list of operations")
    try:
        patched: Manifest = jsonpatch.apply_patch(current, patch)
    except TypeError as error:
        raise errors.bad_request(f"invalid JSON patch: {error}") from error
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise errors.rejected_patch() from error
    return patched


def merge(current: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386): `null` removes, objects are merged, everything else is replaced."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic_merge(current: Manifest, patch: Manifest) -> Manifest:
    """Like `merge`, with lists of named things merged by name and the `$` directives obeyed."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(current)
    if (retained := patch.get("$retainKeys")) is not None:
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = strategic_merge(merged.get(key) or {}, value)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key) or [], value)
        else:
            merged[key] = value
    return merged


def _merge_list(field: str, current: list[Any], patch: list[Any]) -> list[Any]:
    if is_set(field):
        return [*current, *(item for item in patch if item not in current)]
    named = [item for item in patch if not (isinstance(item, dict) and set(item) == {"$patch"})]
    key = merge_key(field, current + named) if field in _MERGE_KEYS else None
    if key is None or len(named) < len(patch):  # atomic, or a bare {"$patch": "replace"} beside the items
        return copy.deepcopy(named)
    merged = {item[key]: item for item in current}
    for item in named:
        if item.get("$patch") == "delete":
            merged.pop(item[key], None)
        else:
            merged[item[key]] = strategic_merge(merged.get(item[key]) or {}, item)
    return list(merged.values())
