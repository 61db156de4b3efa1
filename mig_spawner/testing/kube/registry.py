"""What may be done to objects: create, change, delete, bind, evict. No HTTP here, and no waiting: each method is one
step, so nobody sees half of it."""

from __future__ import annotations

import copy
from typing import Any

from mig_spawner.testing.kube import errors, resources
from mig_spawner.testing.kube.admission import admit, admit_change
from mig_spawner.testing.kube.apply import server_side_apply
from mig_spawner.testing.kube.defaults import fill_defaults, generated_name, initial_status, new_uid, timestamp
from mig_spawner.testing.kube.deletion import DeleteOptions, Deletion
from mig_spawner.testing.kube.knobs import KubeKnobs
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.patches import APPLY_PATCH, apply_patch
from mig_spawner.testing.kube.quota import check_quota, refresh_quotas
from mig_spawner.testing.kube.resources import Manifest, Resource
from mig_spawner.testing.kube.validation import check_form, check_patched, find_faults, find_update_faults

_KEPT_METADATA = (
    "uid",
    "creationTimestamp",
    "generateName",
    "namespace",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    "managedFields",
)


class Registry:
    """The objects and the rules for them. Every refusal is a `StatusError`."""

    def __init__(self, objects: Objects, knobs: KubeKnobs) -> None:
        self.objects = objects
        self.knobs = knobs
        self._deletion = Deletion(objects, knobs)

    def create(self, resource: Resource, namespace: str, given: Any, *, dry_run: bool = False) -> Manifest:
        """Stores a new object, completed; with `dry_run` it is only returned."""
        check_form(resource, given)
        obj: Manifest = copy.deepcopy(given)
        obj |= {"kind": resource.kind, "apiVersion": resource.api_version}
        metadata = obj["metadata"] = obj.get("metadata") or {}
        _check_place(resource, namespace, metadata)
        if metadata.get("resourceVersion"):
            raise errors.unexpected("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = generated_name(metadata["generateName"])
        fill_defaults(resource, obj)
        admit(self.objects, resource, obj)
        name = metadata.get("name") or ""
        if causes := find_faults(resource, obj):
            raise errors.invalid(resource, name, causes)
        if self.objects.find(resource, namespace, name) is not None:
            raise errors.already_exists(resource, name)
        if resource.namespaced:
            check_quota(self.objects, resource, obj)
        metadata |= {"uid": new_uid(), "creationTimestamp": timestamp()}
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(key, None)
        if (status := initial_status(resource, obj)) is not None:
            obj["status"] = status
        if dry_run:
            return obj
        stored = self.objects.put(resource, obj)
        self._after_create(resource, stored)
        return self.objects.get(resource, namespace, name)

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        given: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
        unconditional: bool = False,
    ) -> Manifest:
        """Replaces an object, or only its status where `subresource` says so. A `resourceVersion` that is given must be
        the current one; `unconditional`, which patches are, spares those who must name it (leases)."""
        current = self.objects.get(resource, namespace, name)
        check_form(resource, given)
        metadata: Manifest = given.get("metadata") or {}
        _check_place(resource, namespace, metadata, name)
        if metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
            if unconditional:
                cause = errors.Cause.immutable("metadata.uid", metadata["uid"])
                raise errors.invalid(resource, name, [cause])
            raise _wrong_uid(resource, name, metadata["uid"], current)
        if version := metadata.get("resourceVersion"):
            if not str(version).isdecimal():
                raise errors.unexpected(f'strconv.ParseUint: parsing "{version}": invalid syntax')
            if version != current["metadata"]["resourceVersion"]:
                raise errors.modified(resource, name)
        elif resource == resources.LEASES and not unconditional:
            cause = errors.Cause.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource, name, [cause])
        after = _next_state(resource, current, given, subresource)
        fill_defaults(resource, after)
        admit_change(resource, after)
        causes = find_faults(resource, after) or find_update_faults(resource, current, after)
        if causes:
            raise errors.invalid(resource, name, causes)
        if dry_run:
            return after
        if self._deletion.ends_with(resource, after):
            self._deletion.finish(resource, current)
            return after
        stored = self.objects.put(resource, after)
        if resource.namespaced:
            refresh_quotas(self.objects, namespace)
        settled = self._deletion.settle(resource, stored)
        return self.objects.find(resource, namespace, name) or settled

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        content_type: str,
        patch: Any,
        *,
        manager: str = "",
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[Manifest, bool]:
        """The patched object, and whether it is new: only server-side apply creates."""
        if content_type == APPLY_PATCH:
            if not isinstance(patch, dict):
                raise errors.bad_request("an apply patch must be an object")
            if not manager:
                cause = errors.Cause.required("fieldManager", "is required for apply patch")
                raise errors.invalid_options("PatchOptions", cause)
            if not patch.get("apiVersion") or not patch.get("kind"):
                version, kind = patch.get("apiVersion") or "/", patch.get("kind") or ""
                raise errors.bad_request(f"invalid object type: {version}, Kind={kind}")
            current = self.objects.find(resource, namespace, name)
            check_form(resource, patch)
            patched = server_side_apply(current, patch, manager, force=force, now=timestamp())
            if current is None:
                patched["metadata"].setdefault("name", name)
                return self.create(resource, namespace, patched, dry_run=dry_run), True
        else:
            patched = apply_patch(content_type, self.objects.get(resource, namespace, name), patch)
            check_patched(patched)
        updated = self.update(
            resource, namespace, name, patched, subresource=subresource, dry_run=dry_run, unconditional=True
        )
        return updated, False

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> Manifest:
        """Deletes an object, or marks it for deletion; returns its last state."""
        obj = self.objects.get(resource, namespace, name)
        if resource == resources.PODS and self.knobs.takes_delete_failure():
            raise errors.internal("the knob `delete_failures` is turned")
        return self._deletion.delete(resource, obj, options)

    def bind(self, namespace: str, name: str, binding: Any, *, dry_run: bool = False) -> None:
        """Puts a pod on a node: what a scheduler says to the API."""
        metadata, target = _named(binding, name, "Binding"), binding.get("target") or {}
        node = target.get("name")
        if not node:
            raise errors.unexpected("target.name: Required value")
        if target.get("kind", "Node") not in {"", "Node"}:
            cause = errors.Cause.unsupported("target.kind", target["kind"], ["Node", "<empty>"])
            raise errors.unexpected(f"{cause.field}: {cause.message}")
        pod = self.objects.get(resources.PODS, namespace, name)
        if (uid := metadata.get("uid")) and uid != pod["metadata"]["uid"]:
            raise _wrong_uid(resources.PODS, name, uid, pod)
        if taken := pod["spec"].get("nodeName"):
            message = f'pod {name} is already assigned to node "{taken}"'
            raise errors.conflict(resources.PODS, name, message, about="pods/binding")
        if pod["metadata"].get("deletionTimestamp"):
            message = f"pod {name} is being deleted, cannot be assigned to a host"
            raise errors.conflict(resources.PODS, name, message, about="pods/binding")
        if self.knobs.holds_pending(pod):
            raise errors.internal("the knob `stuck_pending` is turned")
        if dry_run:
            return
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp()}
        others = [known for known in pod["status"].get("conditions") or [] if known["type"] != "PodScheduled"]
        status = {**pod["status"], "conditions": [*others, scheduled]}
        self.objects.put(resources.PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status})

    def evict(self, namespace: str, name: str, eviction: Any, *, dry_run: bool = False) -> None:
        """Deletes a pod as `kubectl drain` does; there are no disruption budgets here."""
        _named(eviction, name, "Eviction")
        options = DeleteOptions.parse(eviction.get("deleteOptions"), {}, dry_run=dry_run)
        self.delete(resources.PODS, namespace, name, options)

    def _after_create(self, resource: Resource, obj: Manifest) -> None:
        metadata = obj["metadata"]
        if resource == resources.NAMESPACES:
            self.create(resources.SERVICE_ACCOUNTS, metadata["name"], {"metadata": {"name": "default"}})
        if resource.namespaced:
            refresh_quotas(self.objects, metadata["namespace"])


def _named(given: Any, name: str, kind: str) -> Manifest:
    """The metadata of what was sent about an object, which must name it."""
    metadata: Any = given.get("metadata") if isinstance(given, dict) else None
    if not isinstance(metadata, dict) or metadata.get("name") != name:
        raise errors.bad_request(f"name in URL does not match name in {kind} object")
    return metadata


def _wrong_uid(resource: Resource, name: str, uid: str, current: Manifest) -> errors.StatusError:
    place = "/".join(filter(None, (resource.plural, current["metadata"].get("namespace"), name)))
    return errors.conflict(
        resource,
        name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg:"
        f" Precondition failed: UID in precondition: {uid}, UID in object meta: {current['metadata']['uid']}",
    )


def _check_place(resource: Resource, namespace: str, metadata: Manifest, name: str = "") -> None:
    """The object must be what the path says."""
    if name and metadata.get("name", name) != name:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
        )
    if not resource.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    else:
        metadata["namespace"] = namespace
    if name:
        metadata["name"] = name


def _next_state(resource: Resource, current: Manifest, given: Manifest, subresource: str) -> Manifest:
    """The object after an update: who writes the status leaves the rest alone, and the other way round."""
    if subresource == "status":
        status = copy.deepcopy(given.get("status") or {})
        for container in status.get("containerStatuses") or []:
            container.setdefault("lastState", {})
        return {**copy.deepcopy(current), "status": status}
    if subresource == "finalize":
        return {**copy.deepcopy(current), "spec": copy.deepcopy(given.get("spec") or {})}
    after = copy.deepcopy(given)
    after |= {"kind": resource.kind, "apiVersion": resource.api_version}
    metadata = after.setdefault("metadata", {})
    for key in _KEPT_METADATA:
        if key == "managedFields" and key in metadata:
            continue
        if key in current["metadata"]:
            metadata[key] = copy.deepcopy(current["metadata"][key])
        else:
            metadata.pop(key, None)
    if resource.has_status:
        after["status"] = copy.deepcopy(current.get("status") or {})
    if resource == resources.PODS:
        _keep_pod_fields(current["spec"], after)
    if resource == resources.SERVICES:
        for key in ("clusterIP", "clusterIPs"):
            if current["spec"].get(key):
                after.setdefault("spec", {}).setdefault(key, current["spec"][key])
    return after


def _keep_pod_fields(before: Manifest, pod: Manifest) -> None:
    """What admission once filled in is kept when an author sends the pod again without it."""
    spec = pod.setdefault("spec", {})
    for key in ("priority", "preemptionPolicy", "nodeName", "priorityClassName", "overhead"):
        if key in before and spec.get(key) is None:
            spec[key] = before[key]
    if not spec.get("tolerations") and before.get("tolerations"):
        spec["tolerations"] = copy.deepcopy(before["tolerations"])
