"""How objects go: with grace, held by finalizers, and taking along what they own.

A bound pod stays, with `deletionTimestamp`, until its kubelet deletes it with grace 0. A claim stays while a pod uses
it. A namespace stays until it is empty. What names a removed object as its owner is removed with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.admission import CLAIM_PROTECTION
from mig_spawner.testing.kube.defaults import timestamp
from mig_spawner.testing.kube.errors import Cause, bad_request, conflict, forbidden, invalid_options
from mig_spawner.testing.kube.knobs import KubeKnobs
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.quota import refresh_quotas
from mig_spawner.testing.kube.resources import Manifest, Resource

_POLICIES = ("Foreground", "Background", "Orphan")
_NEVER_DELETED = {"default", "kube-system", "kube-public"}


@dataclass(frozen=True)
class DeleteOptions:
    """How to delete: seconds of grace (`None` leaves it to the object), preconditions, and what owned objects do."""

    grace: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    orphan: bool = False
    dry_run: bool = False

    @classmethod
    def parse(cls, body: Any, query: Manifest, *, dry_run: bool) -> DeleteOptions:
        """From the body of the request, which may be absent, over its query. Raises `StatusError` 400 or 422."""
        if body is not None and not isinstance(body, dict):
            raise bad_request("DeleteOptions must be a JSON object")
        options = body or {}
        given = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        try:
            grace = None if given is None else int(given)
        except (TypeError, ValueError) as error:
            raise bad_request(f'strconv.ParseInt: parsing "{given}": invalid syntax') from error
        if grace is not None and grace < 0:
            grace = 1
        preconditions = options.get("preconditions") or {}
        policy = options.get("propagationPolicy", query.get("propagationPolicy"))
        if policy not in {None, "", *_POLICIES}:
            cause = Cause.unsupported("propagationPolicy", policy, [*_POLICIES, "nil"])
            raise invalid_options("DeleteOptions", cause)
        return cls(
            grace,
            preconditions.get("uid"),
            preconditions.get("resourceVersion"),
            policy == "Orphan",
            dry_run or options.get("dryRun") == ["All"],
        )


class Deletion:
    """Takes objects out of the store, now or when the time comes."""

    def __init__(self, objects: Objects, knobs: KubeKnobs) -> None:
        self._objects = objects
        self._knobs = knobs

    def delete(self, resource: Resource, obj: Manifest, options: DeleteOptions) -> Manifest:
        """Deletes, or marks for deletion; returns the last known state. Raises `StatusError` 409 on a precondition, 403
        for a namespace that must stay."""
        metadata = obj["metadata"]
        checks = (
            ("uid", "UID", options.uid, "deleted and then recreated"),
            ("resourceVersion", "ResourceVersion", options.resource_version, "modified"),
        )
        for field, word, wanted, happened in checks:
            if wanted is not None and wanted != metadata[field]:
                message = (
                    f"the {word} in the precondition ({wanted}) does not match the {word} in record ({metadata[field]})."
                    f" The object might have been {happened}"
                )
                raise conflict(resource, metadata["name"], message, about=resource.kind)
        if resource == resources.NAMESPACES and metadata["name"] in _NEVER_DELETED:
            raise forbidden(resource, metadata["name"], "this namespace may not be deleted")
        if options.dry_run:
            return obj
        if options.orphan:
            self._release_dependents(obj)
        if resource not in {resources.PODS, resources.NAMESPACES} and not metadata.get("finalizers"):
            return self.finish(resource, obj)
        marked = self._objects.put(resource, _marked(obj, self._grace(resource, obj, options.grace)))
        if resource == resources.NAMESPACES:
            self._empty_namespace(metadata["name"])
        return self.settle(resource, marked)

    def settle(self, resource: Resource, obj: Manifest) -> Manifest:
        """Removes an object that is marked for deletion once nothing holds it any more; returns its last state."""
        metadata = obj["metadata"]
        if self._objects.find(resource, metadata.get("namespace", ""), metadata["name"]) is not obj:
            return obj  # it went, or changed, with something that it held
        if not metadata.get("deletionTimestamp") or metadata.get("deletionGracePeriodSeconds"):
            return obj
        if resource == resources.PODS and self._knobs.holds_terminating(obj):
            return obj
        if resource == resources.NAMESPACES and self._has_content(metadata["name"]):
            return obj
        if resource == resources.CLAIMS and not self._is_used(obj):
            kept = [name for name in metadata.get("finalizers") or [] if name != CLAIM_PROTECTION]
            obj = {**obj, "metadata": {**metadata, "finalizers": kept}}
        if obj["metadata"].get("finalizers"):
            return obj
        return self.finish(resource, obj)

    def ends_with(self, resource: Resource, after: Manifest) -> bool:
        """Whether a change lifts the last thing that held an object which is marked for deletion."""
        metadata = after["metadata"]
        is_due = bool(metadata.get("deletionTimestamp")) and not metadata.get("deletionGracePeriodSeconds")
        is_held = resource == resources.PODS and self._knobs.holds_terminating(after)
        return is_due and not is_held and not metadata.get("finalizers") and resource != resources.NAMESPACES

    def finish(self, resource: Resource, obj: Manifest) -> Manifest:
        """Removes an object and what goes with it; returns its last state. Nothing may hold it."""
        last = self._objects.remove(resource, obj)
        self._after_removal(resource, last)
        return last

    def _grace(self, resource: Resource, obj: Manifest, asked: int | None) -> int:
        if resource != resources.PODS:
            return 0
        if not obj["spec"].get("nodeName") or obj["status"].get("phase") in {"Succeeded", "Failed"}:
            return 0
        grace = int(obj["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)
        already = obj["metadata"].get("deletionGracePeriodSeconds")
        return grace if already is None else min(grace, already)

    def _after_removal(self, resource: Resource, obj: Manifest) -> None:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        self._remove_dependents(obj)
        if resource == resources.NODES:
            for pod in self._objects.all(resources.PODS):
                if pod["spec"].get("nodeName") == metadata["name"]:
                    self.delete(resources.PODS, pod, DeleteOptions(grace=0))
        if resource == resources.PODS:
            for claim in self._objects.all(resources.CLAIMS, namespace):
                self.settle(resources.CLAIMS, claim)
        if not namespace:
            return
        refresh_quotas(self._objects, namespace)
        if home := self._objects.find(resources.NAMESPACES, "", namespace):
            self.settle(resources.NAMESPACES, home)

    def _remove_dependents(self, owner: Manifest) -> None:
        uid = owner["metadata"]["uid"]
        for resource, obj in self._objects.everything():
            owners = obj["metadata"].get("ownerReferences") or []
            if not any(reference.get("uid") == uid for reference in owners):
                continue
            others = [reference for reference in owners if reference.get("uid") != uid]
            if others:
                self._objects.put(resource, {**obj, "metadata": {**obj["metadata"], "ownerReferences": others}})
            elif not obj["metadata"].get("deletionTimestamp"):
                self.delete(resource, obj, DeleteOptions())

    def _release_dependents(self, owner: Manifest) -> None:
        uid = owner["metadata"]["uid"]
        for resource, obj in self._objects.everything():
            owners = obj["metadata"].get("ownerReferences") or []
            others = [reference for reference in owners if reference.get("uid") != uid]
            if len(others) < len(owners):
                self._objects.put(resource, {**obj, "metadata": {**obj["metadata"], "ownerReferences": others}})

    def _empty_namespace(self, name: str) -> None:
        for resource, obj in self._objects.everything():
            still_there = self._objects.find(resource, name, obj["metadata"]["name"]) is obj
            if obj["metadata"].get("namespace") == name and still_there:
                self.delete(resource, obj, DeleteOptions())

    def _has_content(self, namespace: str) -> bool:
        return any(obj["metadata"].get("namespace") == namespace for _, obj in self._objects.everything())

    def _is_used(self, claim: Manifest) -> bool:
        metadata = claim["metadata"]
        for pod in self._objects.all(resources.PODS, metadata["namespace"]):
            if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
                continue
            named = [volume.get("persistentVolumeClaim") or {} for volume in pod["spec"].get("volumes") or []]
            if any(volume.get("claimName") == metadata["name"] for volume in named):
                return True
        return False


def _marked(obj: Manifest, grace: int) -> Manifest:
    metadata = dict(obj["metadata"])
    if metadata.get("deletionTimestamp") is None or metadata.get("deletionGracePeriodSeconds", 0) > grace:
        due = datetime.now(UTC) + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = due.strftime("%Y-%m-%dT%H:%M:%SZ") if grace else timestamp()
        if obj["kind"] != "Namespace":
            metadata["deletionGracePeriodSeconds"] = grace
    marked = {**obj, "metadata": metadata}
    if obj["kind"] == "Namespace":
        marked["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return marked
