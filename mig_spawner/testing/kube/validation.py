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
from mig_spawner.testing.kube.errors import Cause, bad_request
from mig_spawner.testing.kube.pod_validation import find_pod_faults, find_pod_update_faults
from mig_spawner.testing.kube.quantities import parse_quantity
from mig_spawner.testing.kube.resources import Manifest, Resource
from mig_spawner.testing.kube.shapes import find_misshapen

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PATH_SEGMENT = re.compile(r"[^/%]+")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character"
)
_QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character"
)
_DNS_LABEL_NAMES = {resources.NAMESPACES, resources.SERVICES}
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


def find_faults(resource: Resource, obj: Manifest) -> list[Cause]:
    """What is wrong with an object whose defaults are filled in; empty when it may be stored."""
    causes = list(_metadata_faults(resource, obj["metadata"]))
    match resource:
        case resources.PODS:
            causes += find_pod_faults(obj)
        case resources.CLAIMS:
            causes += _claim_faults(obj.get("spec") or {})
        case resources.SERVICES:
            causes += _service_faults(obj.get("spec") or {})
        case resources.SECRETS | resources.CONFIG_MAPS:
            causes += _data_faults(obj)
        case resources.PRIORITY_CLASSES:
            causes += _priority_class_faults(obj)
        case resources.RUNTIME_CLASSES if not obj.get("handler"):
            causes.append(Cause.required("handler"))
        case resources.ROLE_BINDINGS | resources.CLUSTER_ROLE_BINDINGS if not (obj.get("roleRef") or {}).get("name"):
            causes.append(Cause.required("roleRef.name"))
        case _:
            pass
    return causes


def find_update_faults(resource: Resource, before: Manifest, after: Manifest) -> list[Cause]:
    """What may not be changed in an object that exists."""
    match resource:
        case resources.PODS:
            return find_pod_update_faults(before, after)
        case resources.SECRETS if before.get("type") != after.get("type"):
            return [Cause.invalid("type", str(after.get("type")), "field is immutable")]
        case resources.ROLE_BINDINGS | resources.CLUSTER_ROLE_BINDINGS if before["roleRef"] != after.get("roleRef"):
            return [Cause.invalid("roleRef", str(after.get("roleRef")), "cannot change roleRef")]
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
    name = metadata.get("name") or ""
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    elif resource in _ANY_SEGMENT_NAMES:
        if not _PATH_SEGMENT.fullmatch(name):
            yield Cause.invalid("metadata.name", name, "may not contain '/' or '%'")
    elif resource in _DNS_LABEL_NAMES:
        if len(name) > 63 or not _LABEL.fullmatch(name):
            yield Cause.invalid("metadata.name", name, _LABEL_RULE)
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield Cause.invalid("metadata.name", name, _SUBDOMAIN_RULE)
    for key, value in (metadata.get("labels") or {}).items():
        yield from _qualified_faults("metadata.labels", key)
        if value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
            yield Cause.invalid("metadata.labels", value, _VALUE_RULE)
    for key in metadata.get("annotations") or {}:
        yield from _qualified_faults("metadata.annotations", key.lower())


def _qualified_faults(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63 or not _QUALIFIED.fullmatch(name):
        yield Cause.invalid(field, key, _QUALIFIED_RULE)
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        yield Cause.invalid(field, key, f"prefix part {_SUBDOMAIN_RULE}")


def _claim_faults(spec: Manifest) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        yield Cause.required("spec.accessModes", "at least 1 access mode is required")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield Cause.required("spec.resources[storage]")
    elif parse_quantity(storage) <= 0:
        yield Cause.invalid("spec.resources[storage]", str(storage), "must be greater than zero")


def _claim_update_faults(before: Manifest, after: Manifest) -> Iterator[Cause]:
    def fixed(spec: Manifest) -> Manifest:
        free = {"resources"} if before.get("volumeName") else {"resources", "volumeName"}
        return {key: value for key, value in spec.items() if key not in free}

    if fixed(before) != fixed(after):
        yield Cause.forbidden("spec", "is immutable after creation except resources.requests for bound claims")


def _service_faults(spec: Manifest) -> Iterator[Cause]:
    if spec["type"] not in (known := ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")):
        yield Cause.unsupported("spec.type", spec["type"], known)
    if not spec.get("ports") and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield Cause.required("spec.ports")
    for index, port in enumerate(spec.get("ports") or []):
        number = port.get("port")
        if not isinstance(number, int) or not 0 < number < 65536:
            yield Cause.invalid(f"spec.ports[{index}].port", number, "must be between 1 and 65535, inclusive")


def _data_faults(obj: Manifest) -> Iterator[Cause]:
    for key in [*(obj.get("data") or {}), *(obj.get("binaryData") or {})]:
        if len(key) > 253 or not re.fullmatch(r"[-._a-zA-Z0-9]+", key) or key in {".", ".."}:
            yield Cause.invalid(
                f"data[{key}]", key, "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            )


def _priority_class_faults(obj: Manifest) -> Iterator[Cause]:
    value = obj.get("value", 0)
    if not isinstance(value, int) or (value > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-")):
        yield Cause.forbidden("value", "maximum allowed value of a user defined priority is 1000000000")
