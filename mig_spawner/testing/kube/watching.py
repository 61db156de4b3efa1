"""Lists and watches: what is there, and what changes from there on.

A watch with a selector speaks of the selection: an object that begins to match is ADDED, one that no longer does is
DELETED. Watches end after `timeoutSeconds`, or when the server goes down; clients come back with the last revision.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, Callable, Mapping

from mig_spawner.testing.kube.errors import (
    Cause,
    StatusError,
    bad_request,
    invalid_options,
    unexpected,
    version_too_large,
)
from mig_spawner.testing.kube.objects import Change, Objects
from mig_spawner.testing.kube.paths import parse_bool
from mig_spawner.testing.kube.resources import Manifest, Resource
from mig_spawner.testing.kube.selectors import Selector, parse_selectors

_LONGEST_WATCH_S = 1800.0
_LOOK_UP_S = 0.2  # how often an idle watch asks whether it should end


def list_objects(objects: Objects, resource: Resource, namespace: str, query: Mapping[str, str]) -> Manifest:
    """The `List` that answers a GET, in chunks of `limit` if asked. Raises `StatusError` 400, 422 or 504."""
    selects = parse_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    _check_reached(objects, _revision(query))
    found = [obj for obj in objects.all(resource, namespace) if selects(obj)]
    metadata = {"resourceVersion": str(objects.revision)}
    if token := query.get("continue"):
        last = _decode_continue(token)
        found = [obj for obj in found if _place(obj) > last]
    limit = max(_whole_number(query, "limit") or 0, 0)
    if limit and len(found) > limit:
        metadata["remainingItemCount"] = str(len(found) - limit)
        found = found[:limit]
        metadata["continue"] = base64.urlsafe_b64encode(json.dumps(_place(found[-1])).encode()).decode()
    page: Manifest = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {**metadata},
        # As in the real API: what the list has said, its items do not repeat.
        "items": [{key: obj[key] for key in obj if key not in {"kind", "apiVersion"}} for obj in found],
    }
    if "remainingItemCount" in metadata:
        page["metadata"]["remainingItemCount"] = int(metadata["remainingItemCount"])
    return page


async def watch_objects(
    objects: Objects,
    resource: Resource,
    namespace: str,
    name: str,
    query: Mapping[str, str],
    *,
    is_over: Callable[[], bool],
) -> AsyncGenerator[Manifest, None]:
    """The events of a watch, as sent on the wire, until `is_over`. Raises `StatusError` 400 or 504 before the first event; what goes
    wrong later is an ERROR event."""
    selects = parse_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    if not (text := query.get("resourceVersion") or "0").isdecimal():
        raise unexpected(_not_a_revision(text))
    revision = _revision(query)
    _check_reached(objects, revision)
    timeout = _whole_number(query, "timeoutSeconds") or _LONGEST_WATCH_S

    def concerns(obj: Manifest) -> bool:
        metadata = obj["metadata"]
        return (not namespace or metadata.get("namespace") == namespace) and name in {"", metadata["name"]}

    with objects.subscribe(resource) as feed:
        if revision:
            try:
                past = objects.changes_since(resource, revision)
            except StatusError as error:
                yield {"type": "ERROR", "object": error.status}
                return
        else:
            past = []
            for obj in objects.all(resource, namespace):
                if concerns(obj) and selects(obj):
                    yield {"type": "ADDED", "object": obj}
        if parse_bool(query.get("sendInitialEvents")):
            yield _bookmark(resource, objects.revision, {"k8s.io/initial-events-end": "true"})
        for old in past:
            if concerns(old.object) and (event := _seen(old, selects)):
                yield event
        deadline = asyncio.get_running_loop().time() + timeout
        while not is_over() and (left := deadline - asyncio.get_running_loop().time()) > 0:
            try:
                async with asyncio.timeout(min(left, _LOOK_UP_S)):
                    change = await feed.get()
            except TimeoutError:
                continue
            if change is None:
                return
            if concerns(change.object) and (event := _seen(change, selects)):
                yield event
    if parse_bool(query.get("allowWatchBookmarks")) and not is_over():
        yield _bookmark(resource, objects.revision, {})


def _seen(change: Change, selects: Selector) -> Manifest | None:
    """What a watcher of a selection is told about a change, if anything."""
    was_selected = change.before is not None and selects(change.before)
    if change.type == "DELETED":
        return {"type": "DELETED", "object": change.object} if was_selected else None
    if selects(change.object):
        return {"type": "MODIFIED" if was_selected else "ADDED", "object": change.object}
    if was_selected and change.before is not None:
        revision = {"resourceVersion": str(change.revision)}
        return {"type": "DELETED", "object": {**change.before, "metadata": {**change.before["metadata"], **revision}}}
    return None


def _bookmark(resource: Resource, revision: int, annotations: Mapping[str, str]) -> Manifest:
    metadata: Manifest = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "type": "BOOKMARK",
        "object": {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata},
    }


def _revision(query: Mapping[str, str]) -> int:
    field, match = "resourceVersionMatch", query.get("resourceVersionMatch", "")
    if match and not query.get("resourceVersion"):
        forbidden = Cause.forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
        raise invalid_options("ListOptions", forbidden)
    if match not in {"", "Exact", "NotOlderThan"}:
        raise invalid_options("ListOptions", Cause.unsupported(field, match, ["Exact", "NotOlderThan", ""]))
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_not_a_revision(text)}")
    return int(text)


def _not_a_revision(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _check_reached(objects: Objects, revision: int) -> None:
    if revision > objects.revision:
        raise version_too_large(revision, objects.revision)


def _whole_number(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key, "")
    if not text:
        return None
    if not text.removeprefix("-").isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _place(obj: Manifest) -> list[str]:
    return [obj["metadata"].get("namespace", ""), obj["metadata"]["name"]]


def _decode_continue(token: str) -> list[str]:
    try:
        place = json.loads(base64.urlsafe_b64decode(token))
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if not isinstance(place, list):
        raise bad_request("invalid continue token: continue key is not valid")
    return [str(part) for part in place]
