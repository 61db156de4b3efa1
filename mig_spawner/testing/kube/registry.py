"""What may be done to objects: create, change, delete, bind, evict. No HTTP here, and no waiting: each method is one
step, so nobody sees half of it."""

from __future__ import annotations

import copy
from typing import Any

from mig_spawner.testing.kube import errors, resources
from mig_spawner.testing.kube.admission import admit
from mig_spawner.testing.kube.apply import server_side_apply
from mig_spawner.testing.kube.defaults import fill_defaults, generated_name, initial_status, new_uid, timestamp
from mig_spawner.testing.kube.deletion import DeleteOptions, Deletion
from mig_spawner.testing.kube.knobs import KubeKnobs
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.patches import APPLY_PATCH, apply_patch
from mig_spawner.testing.kube.quota import check_quota, refresh_quotas
from mig_spawner.testing.kube.resources import Manifest, Resource
from mig_spawner.testing.kube.validation import check_form, find_faults, find_update_faults

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
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
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
        the current one; `unconditional` spares those who must name it (leases)."""
        current = self.objects.get(resource, namespace, name)
        check_form(resource, given)
        metadata: Manifest = given.get("metadata") or {}
        _check_place(resource, namespace, metadata, name)
        if metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
            raise errors.conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {metadata['uid']},"
                f" UID in object meta: {current['metadata']['uid']}",
            )
        if metadata.get("resourceVersion"):
            if metadata["resourceVersion"] != current["metadata"]["resourceVersion"]:
                raise errors.modified(resource, name)
        elif resource == resources.LEASES and not unconditional:
            cause = errors.Cause.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(resource, name, [cause])
        after = _next_state(resource, current, given, subresource)
        fill_defaults(resource, after)
        causes = find_faults(resource, after) or find_update_faults(resource, current, after)
        if causes:
            raise errors.invalid(resource, name, causes)
        if dry_run:
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
                raise errors.unprocessable(
                    'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
                )
            current = self.objects.find(resource, namespace, name)
            check_form(resource, patch)
            patched = server_side_apply(current, patch, manager, force=force, now=timestamp())
            if current is None:
                patched["metadata"].setdefault("name", name)
                return self.create(resource, namespace, patched, dry_run=dry_run), True
        else:
            patched = apply_patch(content_type, self.objects.get(resource, namespace, name), patch)
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
        target = (binding.get("target") or {}) if isinstance(binding, dict) else {}
        node = target.get("name")
        if not node:
            raise errors.unprocessable('Binding "" is invalid: target.name: Required value')
        pod = self.objects.get(resources.PODS, namespace, name)
        if taken := pod["spec"].get("nodeName"):
            raise errors.conflict(resources.PODS, name, f'pod {name} is already assigned to node "{taken}"')
        if pod["metadata"].get("deletionTimestamp"):
            raise errors.conflict(resources.PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
        if self.knobs.holds_pending(pod):
            raise errors.internal("the knob `stuck_pending` is turned")
        if dry_run:
            return
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": timestamp()}
        others = [known for known in pod["status"].get("conditions") or [] if known["type"] != "PodScheduled"]
        status = {**pod["status"], "conditions": [*others, scheduled]}
        self.objects.put(resources.PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status})

    def _after_create(self, resource: Resource, obj: Manifest) -> None:
        metadata = obj["metadata"]
        if resource == resources.NAMESPACES:
            self.create(resources.SERVICE_ACCOUNTS, metadata["name"], {"metadata": {"name": "default"}})
        if resource.namespaced:
            refresh_quotas(self.objects, metadata["namespace"])


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
        return {**copy.deepcopy(current), "status": copy.deepcopy(given.get("status") or {})}
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
    if resource == resources.SERVICES and (address := current["spec"].get("clusterIP")):
        after.setdefault("spec", {}).setdefault("clusterIP", address)
    return after


def _keep_pod_fields(before: Manifest, pod: Manifest) -> None:
    """What admission once filled in is kept when an author sends the pod again without it."""
    spec = pod.setdefault("spec", {})
    for key in ("priority", "preemptionPolicy", "nodeName", "priorityClassName", "overhead"):
        if key in before and spec.get(key) is None:
            spec[key] = before[key]
    if not spec.get("tolerations") and before.get("tolerations"):
        spec["tolerations"] = copy.deepcopy(before["tolerations"])
