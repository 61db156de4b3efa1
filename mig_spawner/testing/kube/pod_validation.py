"""What must a pod look like? Extended resources, such as MIG devices, have the strictest rules: whole numbers, and
request equals limit."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from mig_spawner.testing.kube.errors import Cause
from mig_spawner.testing.kube.names import (
    env_name_faults,
    label_faults,
    qualified_faults,
    subdomain_faults,
    value_faults,
)
from mig_spawner.testing.kube.quantities import parse_quantity
from mig_spawner.testing.kube.resources import Manifest

_MUTABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
    " additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was"
    " previously negative)"
)
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_STANDARD_RESOURCES = {"cpu", "memory", "ephemeral-storage"}
_POD_FIELDS = {
    *("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"),
    *("spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
}


def find_pod_faults(pod: Manifest) -> list[Cause]:
    """The faults in the spec of a pod whose defaults are filled in."""
    spec = pod.get("spec") or {}
    causes: list[Cause] = []
    containers = spec.get("containers") or []
    if not containers:
        causes.append(Cause.required("spec.containers"))
    volumes = [str(volume.get("name") or "") for volume in spec.get("volumes") or []]
    causes += _name_faults("spec.volumes", volumes)
    causes += _name_faults("spec.containers", [str(container.get("name") or "") for container in containers])
    for index, container in enumerate(containers):
        causes += _container_faults(f"spec.containers[{index}]", container, set(volumes))
    for field, known in (("restartPolicy", _RESTART_POLICIES), ("dnsPolicy", _DNS_POLICIES)):
        if spec[field] not in known:
            causes.append(Cause.unsupported(f"spec.{field}", spec[field], known))
    for key, value in (spec.get("nodeSelector") or {}).items():
        causes += [*qualified_faults("spec.nodeSelector", key), *value_faults("spec.nodeSelector", value)]
    if spec.get("nodeName"):
        causes += subdomain_faults("spec.nodeName", spec["nodeName"])
    for index, toleration in enumerate(spec.get("tolerations") or []):
        causes += _toleration_faults(f"spec.tolerations[{index}]", toleration)
    return causes


def find_pod_update_faults(before: Manifest, after: Manifest) -> list[Cause]:
    """A pod's spec is fixed, but for its images, deadlines and more tolerations."""
    old, new = before["spec"], after["spec"]
    if len(old["containers"]) != len(new.get("containers") or []):
        return [Cause.forbidden("spec.containers", "pod updates may not add or remove containers")]
    kept = [toleration for toleration in old.get("tolerations") or [] if toleration in (new.get("tolerations") or [])]
    if kept == (old.get("tolerations") or []) and _fixed_part(old) == _fixed_part(new):
        return []
    return [Cause.forbidden("spec", f"pod updates may not change fields other than {_MUTABLE}")]


def is_extended(resource: str) -> bool:
    """Whether a resource is counted in whole devices by some plugin, as `nvidia.com/mig-1g.10gb` is."""
    return "/" in resource and "kubernetes.io/" not in resource


def _fixed_part(spec: Manifest) -> Manifest:
    fixed = copy.deepcopy(spec)
    for key in ("activeDeadlineSeconds", "tolerations"):
        fixed.pop(key, None)
    for container in [*(fixed.get("containers") or []), *(fixed.get("initContainers") or [])]:
        container.pop("image", None)
        container.pop("imagePullPolicy", None)
    return fixed


def _name_faults(field: str, names: list[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        where = f"{field}[{index}].name"
        if not name:
            yield Cause.required(where)
        elif faults := list(label_faults(where, name)):
            yield from faults
        elif name in names[:index]:
            yield Cause.duplicate(where, name)


def _container_faults(field: str, container: Manifest, volumes: set[str]) -> Iterator[Cause]:
    image = container.get("image") or ""
    if not image:
        yield Cause.required(f"{field}.image")
    elif image != image.strip():
        yield Cause.invalid(f"{field}.image", image, "must not have leading or trailing whitespace")
    if container["imagePullPolicy"] not in (policies := ("Always", "IfNotPresent", "Never")):
        yield Cause.unsupported(f"{field}.imagePullPolicy", container["imagePullPolicy"], policies)
    for index, variable in enumerate(container.get("env") or []):
        yield from _variable_faults(f"{field}.env[{index}]", variable)
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            yield Cause.not_found(f"{field}.volumeMounts[{index}].name", str(mount.get("name") or ""))
        if not mount.get("mountPath"):
            yield Cause.required(f"{field}.volumeMounts[{index}].mountPath")
    for index, port in enumerate(container.get("ports") or []):
        number, where = port.get("containerPort"), f"{field}.ports[{index}].containerPort"
        if not number:
            yield Cause.required(where)
        elif not 0 < number < 65536:
            yield Cause.invalid(where, number, "must be between 1 and 65535, inclusive")
    yield from _amount_faults(f"{field}.resources", container["resources"])


def _variable_faults(field: str, variable: Manifest) -> Iterator[Cause]:
    yield from env_name_faults(f"{field}.name", variable.get("name") or "")
    source = variable.get("valueFrom") or {}
    if variable.get("value") and source:
        yield Cause.invalid(f"{field}.valueFrom", "", "may not be specified when `value` is not empty")
    path = (source.get("fieldRef") or {}).get("fieldPath")
    if path is not None and path.partition("[")[0] not in _POD_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {path}"
        yield Cause.invalid(f"{field}.valueFrom.fieldRef.fieldPath", path, detail)


def _amount_faults(field: str, needs: Manifest) -> Iterator[Cause]:
    limits, requests = needs.get("limits") or {}, needs.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{field}.{kind}[{name}]"
            if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
                yield Cause.invalid(where, name, "must be a standard resource type or fully qualified")
                yield Cause.invalid(where, name, "must be a standard resource for containers")
            value = parse_quantity(amount)
            if value < 0:
                yield Cause.invalid(where, str(amount), "must be greater than or equal to 0")
            if is_extended(name) and value.denominator != 1:
                yield Cause.invalid(where, str(amount), "must be an integer")
    for name, amount in requests.items():
        where = f"{field}.requests"
        if name not in limits:
            if is_extended(name):
                yield Cause.required(f"{field}.limits", "Limit must be set for non overcommitable resources")
            continue
        request, limit = parse_quantity(amount), parse_quantity(limits[name])
        if is_extended(name) and request != limit:
            yield Cause.invalid(where, str(amount), f"must be equal to {name} limit of {limits[name]}")
        elif request > limit:
            yield Cause.invalid(where, str(amount), f"must be less than or equal to {name} limit of {limits[name]}")


def _toleration_faults(field: str, toleration: Manifest) -> Iterator[Cause]:
    operator: Any = toleration.get("operator") or "Equal"
    if operator not in (known := ("Equal", "Exists")):
        yield Cause.unsupported(f"{field}.operator", operator, known)
    elif operator == "Equal" and not toleration.get("key"):
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield Cause.invalid(f"{field}.operator", operator, detail)
    elif operator == "Exists" and toleration.get("value"):
        detail = "value must be empty when `operator` is 'Exists'"
        yield Cause.invalid(f"{field}.operator", toleration["value"], detail)
    effect = toleration.get("effect")
    if effect and effect not in (effects := ("NoSchedule", "PreferNoSchedule", "NoExecute")):
        yield Cause.unsupported(f"{field}.effect", effect, effects)
