"""The memory of the embedded API: objects, one revision for all of them, and the log that watches read.

Promises: an object that was handed out is never changed in place, each change is a new one; every change gets a
higher revision; a watch that starts at a revision sees every later change once, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mig_spawner.testing.kube import errors
from mig_spawner.testing.kube.resources import Manifest, Resource

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True)
class Change:
    """What happened to one object at `revision`; `before` is what it was, if it was there."""

    revision: int
    type: ChangeType
    resource: Resource
    object: Manifest
    before: Manifest | None


Feed = asyncio.Queue[Change | None]
"""The changes of one resource as they happen; `None` ends it."""


class Objects:
    """Everything that is stored. Not for use from several threads."""

    def __init__(self, *, history: int = 5000) -> None:
        """`history`: how many changes are kept for watches that start in the past; older ones get 410 Gone."""
        self.revision = 1
        self._objects: dict[Resource, dict[tuple[str, str], Manifest]] = {}
        self._log: deque[Change] = deque(maxlen=history)
        self._feeds: dict[Feed, Resource] = {}

    def find(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        """The object, or `None`. `namespace` is empty for what has none. Not to be changed by the caller."""
        return self._objects.get(resource, {}).get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """The object; raises `StatusError` 404."""
        found = self.find(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource, name)
        return found

    def all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        """All objects of a resource by namespace and name; those of one namespace if it is given."""
        held = self._objects.get(resource, {})
        return [held[key] for key in sorted(held) if not namespace or key[0] == namespace]

    def everything(self) -> Iterator[tuple[Resource, Manifest]]:
        """Every stored object with its resource, as of now."""
        for resource, held in list(self._objects.items()):
            for obj in list(held.values()):
                yield resource, obj

    def put(self, resource: Resource, obj: Manifest) -> Manifest:
        """Stores an object under its namespace and name. What changes nothing keeps its revision and makes no event."""
        key = _key(obj)
        held = self._objects.setdefault(resource, {})
        before = held.get(key)
        if before is not None and _without_revision(before) == _without_revision(obj):
            return before
        stored = self._stamp(obj)
        held[key] = stored
        self._record(Change(self.revision, "ADDED" if before is None else "MODIFIED", resource, stored, before))
        return stored

    def remove(self, resource: Resource, obj: Manifest) -> Manifest:
        """Takes the object out and returns its last state. It must be there."""
        before = self._objects[resource].pop(_key(obj))
        last = self._stamp(obj)
        self._record(Change(self.revision, "DELETED", resource, last, before))
        return last

    def changes_since(self, resource: Resource, revision: int) -> list[Change]:
        """What happened to a resource after `revision`. Raises `StatusError` 410 when that is no longer known."""
        oldest = self._log[0].revision if self._log else self.revision + 1
        if revision < oldest - 1:
            raise errors.gone(revision, oldest)
        return [change for change in self._log if change.revision > revision and change.resource == resource]

    def forget_history(self) -> None:
        """Drops the log, as compaction does: a watch from an earlier revision is answered 410 Gone."""
        self.revision += 1
        self._log.clear()

    @contextlib.contextmanager
    def subscribe(self, resource: Resource) -> Iterator[Feed]:
        """The feed of a resource from now on."""
        feed: Feed = asyncio.Queue()
        self._feeds[feed] = resource
        try:
            yield feed
        finally:
            del self._feeds[feed]

    def end_feeds(self) -> None:
        """Ends all open watches; clients come back."""
        for feed in self._feeds:
            feed.put_nowait(None)

    def _stamp(self, obj: Manifest) -> Manifest:
        self.revision += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}

    def _record(self, change: Change) -> None:
        self._log.append(change)
        for feed, resource in self._feeds.items():
            if resource == change.resource:
                feed.put_nowait(change)


def _key(obj: Manifest) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _without_revision(obj: Manifest) -> Manifest:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}
