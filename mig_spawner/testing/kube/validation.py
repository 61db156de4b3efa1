"""Which objects does the API refuse? Two steps, as in the real one.

`check_form` is decoding: what cannot be read at all is a 400. `find_faults` is validation: what was read and breaks a
rule is a 422 with one cause per fault. What a pod must look like is in `pod_validation`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.errors import Cause, StatusError, bad_request
from mig_spawner.testing.kube.names import (
    config_key_faults,
    label_faults,
    qualified_faults,
    subdomain_faults,
    value_faults,
)
from mig_spawner.testing.kube.pod_validation import find_pod_faults, find_pod_update_faults
from mig_spawner.testing.kube.quantities import parse_quantity
from mig_spawner.testing.kube.resources import Manifest, Resource
from mig_spawner.testing.kube.shapes import find_misshapen

_PATH_SEGMENT = re.compile(r"[^/%]+")
_DNS_LABEL_NAMES = {resources.NAMESPACES, resources.SERVICES}
_ROLE_REFERENCE = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
_STANDARD_FINALIZERS = {"kubernetes", "foregroundDeletion", "orphan"}
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_QUOTA_COUNTS = {
    *("configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets"),
    *("services", "services.loadbalancers", "services.nodeports"),
}
_ANY_SEGMENT_NAMES = {
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.CLUSTER_ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
}


def check_form(resource: Resource, obj: Any) -> None:
    """Raises `StatusError` 400 where the real API could not decode the object."""
    if not isinstance(obj, dict):
        raise bad_request(f"the object provided is unrecognized: expected a JSON object, got {type(obj).__name__}")
    kind, version = obj.get("kind") or resource.kind, obj.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f"the object provided is unrecognized: {version}, Kind={kind} does not match the expected"
            f" {resource.api_version}, Kind={resource.kind}"
        )
    for path, problem in find_misshapen(obj):
        raise _undecodable(resource, path, problem)
    for path, quantity in _quantities(resource, obj):
        try:
            parse_quantity(quantity)
        except ValueError as error:
            raise _undecodable(resource, path, str(error)) from error
    if resource == resources.SECRETS:
        for key, value in (obj.get("data") or {}).items():
            try:
                base64.b64decode(value, validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise _undecodable(resource, f"data.{key}", f"illegal base64 data: {error}") from error


def check_patched(obj: Manifest) -> None:
    """Raises `StatusError` 422 for a patch that leaves behind what cannot be decoded."""
    for path, problem in find_misshapen(obj):
        raise StatusError(422, "Invalid", f' "" is invalid: patch: Invalid value: {path}: {problem}')


def find_faults(resource: Resource, obj: Manifest) -> list[Cause]:
    """What is wrong with an object whose defaults are filled in; empty when it may be stored."""
    causes = list(_metadata_faults(resource, obj["metadata"]))
    match resource:
        case resources.PODS:
            causes += find_pod_faults(obj)
        case resources.CLAIMS:
            causes += _claim_faults(obj.get("spec") or {})
        case resources.VOLUMES:
            causes += _volume_faults(obj.get("spec") or {})
        case resources.QUOTAS:
            causes += _quota_faults((obj.get("spec") or {}).get("hard") or {})
        case resources.EVENTS:
            causes += _event_faults(obj)
        case resources.ROLES | resources.CLUSTER_ROLES:
            for index, rule in enumerate(obj.get("rules") or []):
                causes += _rule_faults(f"rules[{index}]", rule)
        case resources.NODES:
            for index, taint in enumerate((obj.get("spec") or {}).get("taints") or []):
                if not taint.get("effect"):
                    causes.append(Cause.required(f"metadata.taints[{index}].effect"))
        case resources.LEASES:
            seconds = (obj.get("spec") or {}).get("leaseDurationSeconds")
            if seconds is not None and seconds <= 0:
                causes.append(Cause.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
        case resources.SERVICES:
            causes += _service_faults(obj.get("spec") or {})
        case resources.SECRETS | resources.CONFIG_MAPS:
            causes += _data_faults(obj)
        case resources.PRIORITY_CLASSES:
            causes += _priority_class_faults(obj)
        case resources.RUNTIME_CLASSES:
            handler = obj.get("handler") or ""
            causes += label_faults("handler", handler) if handler else [Cause.required("handler")]
        case resources.ROLE_BINDINGS | resources.CLUSTER_ROLE_BINDINGS:
            causes += _role_reference_faults(resource, obj.get("roleRef") or {})
        case _:
            pass
    return causes


def find_update_faults(resource: Resource, before: Manifest, after: Manifest) -> list[Cause]:
    """What may not be changed in an object that exists."""
    match resource:
        case resources.PODS:
            return find_pod_update_faults(before, after)
        case resources.SECRETS if before.get("type") != after.get("type"):
            return [Cause.immutable("type", str(after.get("type")))]
        case resources.SECRETS | resources.CONFIG_MAPS if before.get("immutable"):
            changed = [key for key in ("data", "binaryData") if before.get(key) != after.get(key)]
            if not after.get("immutable"):
                changed.insert(0, "immutable")
            return [Cause.forbidden(key, "field is immutable when `immutable` is set") for key in changed]
        case resources.ROLE_BINDINGS | resources.CLUSTER_ROLE_BINDINGS if before["roleRef"] != after.get("roleRef"):
            given = after.get("roleRef") or {}
            shown = {word: given.get(key, "") for word, key in _ROLE_REFERENCE}
            return [Cause.invalid("roleRef", shown, "cannot change roleRef")]
        case resources.PRIORITY_CLASSES if before.get("value") != after.get("value"):
            return [Cause.forbidden("value", "may not be changed in an update.")]
        case resources.CLAIMS:
            return list(_claim_update_faults(before["spec"], after["spec"]))
        case _:
            return []


def _undecodable(resource: Resource, field: str, problem: str) -> Exception:
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {field}: {problem}'
    )


def _quantities(resource: Resource, obj: Manifest) -> Iterator[tuple[str, Any]]:
    spec = obj.get("spec") or {}
    if resource == resources.PODS:
        containers = spec.get("containers") or []
        for index, container in enumerate(containers):
            needs = container.get("resources") or {}
            for kind in ("limits", "requests"):
                yield from _each(f"spec.containers[{index}].resources.{kind}", needs.get(kind))
    elif resource == resources.CLAIMS:
        for kind in ("limits", "requests"):
            yield from _each(f"spec.resources.{kind}", (spec.get("resources") or {}).get(kind))
    elif resource == resources.VOLUMES:
        yield from _each("spec.capacity", spec.get("capacity"))
    elif resource == resources.QUOTAS:
        yield from _each("spec.hard", spec.get("hard"))
    elif resource == resources.NODES:
        for kind in ("capacity", "allocatable"):
            yield from _each(f"status.{kind}", (obj.get("status") or {}).get(kind))


def _each(path: str, amounts: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    for name, amount in (amounts or {}).items():
        yield f"{path}[{name}]", amount


def _metadata_faults(resource: Resource, metadata: Manifest) -> Iterator[Cause]:
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    if prefix:
        yield from _name_faults(resource, "metadata.generateName", prefix, prefix.rstrip("-") + "x")
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    else:
        yield from _name_faults(resource, "metadata.name", name, name)
    for key, value in (metadata.get("labels") or {}).items():
        yield from qualified_faults("metadata.labels", key)
        yield from value_faults("metadata.labels", value)
    for key in metadata.get("annotations") or {}:
        yield from qualified_faults("metadata.annotations", key, folded=True)
    for index, finalizer in enumerate(metadata.get("finalizers") or []):
        where = f"metadata.finalizers[{index}]"
        if faults := list(qualified_faults(where, finalizer)):
            yield from faults
        elif "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield Cause.invalid(where, finalizer, detail)


def _name_faults(resource: Resource, field: str, shown: str, name: str) -> Iterator[Cause]:
    """Faults of `name`, told of what is `shown`."""
    if resource in _ANY_SEGMENT_NAMES:
        if not _PATH_SEGMENT.fullmatch(name):
            yield Cause.invalid(field, shown, "may not contain '/' or '%'")
        return
    check = label_faults if resource in _DNS_LABEL_NAMES else subdomain_faults
    for cause in check(field, name):
        yield Cause(field, cause.reason, cause.message.replace(f'"{name}"', f'"{shown}"', 1))


def _claim_faults(spec: Manifest) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        yield Cause.required("spec.accessModes", "at least 1 access mode is required")
    for mode in spec.get("accessModes") or []:
        if mode not in _ACCESS_MODES:
            yield Cause.unsupported("spec.accessModes", mode, _ACCESS_MODES)
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield Cause.required("spec.resources[storage]")
    elif parse_quantity(storage) <= 0:
        yield Cause.invalid("spec.resources[storage]", str(storage), "must be greater than zero")


def _claim_update_faults(before: Manifest, after: Manifest) -> Iterator[Cause]:
    def fixed(spec: Manifest) -> Manifest:
        # What was left open may be said later, once: by who binds the claim, or by who names a class for it.
        free = {"resources"} | {key for key in ("volumeName", "storageClassName") if not before.get(key)}
        return {key: value for key, value in spec.items() if key not in free}

    if fixed(before) != fixed(after):
        allowed = "resources.requests and volumeAttributesClassName for bound claims"
        yield Cause.forbidden("spec", f"spec is immutable after creation except {allowed}")


def _service_faults(spec: Manifest) -> Iterator[Cause]:
    if spec["type"] not in (known := ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")):
        yield Cause.unsupported("spec.type", spec["type"], known)
    if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield Cause.required("spec.ports")
    ports = spec.get("ports") or []
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield Cause.required(f"spec.ports[{index}].name")
        for key in ("port", "targetPort"):
            number = port.get(key)
            if isinstance(number, int) and not 0 < number < 65536:
                yield Cause.invalid(f"spec.ports[{index}].{key}", number, "must be between 1 and 65535, inclusive")


def _volume_faults(spec: Manifest) -> Iterator[Cause]:
    for key in ("accessModes", "capacity"):
        if not spec.get(key):
            yield Cause.required(f"spec.{key}")


def _quota_faults(hard: Manifest) -> Iterator[Cause]:
    for name, amount in hard.items():
        where = f"spec.hard[{name}]"
        parts = name.removeprefix("requests.").removeprefix("limits.")
        if "/" not in parts and parts not in {"cpu", "memory", "storage", "ephemeral-storage"} | _QUOTA_COUNTS:
            yield Cause.invalid(where, name, "must be a standard resource type or fully qualified")
            yield Cause.invalid(where, name, "must be a standard resource for quota")
        if parse_quantity(amount) < 0:
            yield Cause.invalid(where, str(amount), "must be greater than or equal to 0")


def _event_faults(event: Manifest) -> Iterator[Cause]:
    namespace = (event.get("involvedObject") or {}).get("namespace") or ""
    # What has no namespace, such as a node, is told of in the default one.
    if (namespace or "default") != event["metadata"]["namespace"]:
        yield Cause.invalid("involvedObject.namespace", namespace, "does not match event.namespace")


def _rule_faults(field: str, rule: Manifest) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield Cause.required(f"{field}.verbs", "verbs must contain at least one value")
    if rule.get("nonResourceURLs"):
        return
    if not rule.get("apiGroups"):
        yield Cause.required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield Cause.required(f"{field}.resources", "resource rules must supply at least one resource")


def _role_reference_faults(resource: Resource, reference: Manifest) -> Iterator[Cause]:
    known = ["Role", "ClusterRole"] if resource == resources.ROLE_BINDINGS else ["ClusterRole"]
    if reference.get("kind") not in known:
        yield Cause.unsupported("roleRef.kind", reference.get("kind") or "", known)
    if not reference.get("name"):
        yield Cause.required("roleRef.name")


def _data_faults(obj: Manifest) -> Iterator[Cause]:
    for key in [*(obj.get("data") or {}), *(obj.get("binaryData") or {})]:
        yield from config_key_faults(f"data[{key}]", key)


def _priority_class_faults(obj: Manifest) -> Iterator[Cause]:
    value = obj.get("value", 0)
    if not isinstance(value, int) or (value > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-")):
        yield Cause.forbidden("value", "maximum allowed value of a user defined priority is 1000000000")
