"""What must a pod look like? Extended resources, such as MIG devices, have the strictest rules: whole numbers, and
request equals limit."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from mig_spawner.testing.kube.errors import Cause
from mig_spawner.testing.kube.quantities import parse_quantity
from mig_spawner.testing.kube.resources import Manifest

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character"
)
_MUTABLE = "image, activeDeadlineSeconds, terminationGracePeriodSeconds and tolerations (only additions)"


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
    if spec["restartPolicy"] not in (policies := ("Always", "Never", "OnFailure")):
        causes.append(Cause.unsupported("spec.restartPolicy", spec["restartPolicy"], policies))
    for index, toleration in enumerate(spec.get("tolerations") or []):
        causes += _toleration_faults(f"spec.tolerations[{index}]", toleration)
    return causes


def find_pod_update_faults(before: Manifest, after: Manifest) -> list[Cause]:
    """A pod's spec is fixed, but for its images, deadlines and more tolerations."""
    old, new = before["spec"], after["spec"]
    kept = [toleration for toleration in old.get("tolerations") or [] if toleration in (new.get("tolerations") or [])]
    if kept == (old.get("tolerations") or []) and _fixed_part(old) == _fixed_part(new):
        return []
    return [Cause.forbidden("spec", f"pod updates may not change fields other than {_MUTABLE}")]


def is_extended(resource: str) -> bool:
    """Whether a resource is counted in whole devices by some plugin, as `nvidia.com/mig-1g.10gb` is."""
    return "/" in resource and "kubernetes.io/" not in resource


def _fixed_part(spec: Manifest) -> Manifest:
    fixed = copy.deepcopy(spec)
    for key in ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations"):
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
        elif not _LABEL.fullmatch(name):
            yield Cause.invalid(where, name, _LABEL_RULE)
        elif name in names[:index]:
            yield Cause.duplicate(where, name)


def _container_faults(field: str, container: Manifest, volumes: set[str]) -> Iterator[Cause]:
    if not container.get("image"):
        yield Cause.required(f"{field}.image")
    if container["imagePullPolicy"] not in (policies := ("Always", "IfNotPresent", "Never")):
        yield Cause.unsupported(f"{field}.imagePullPolicy", container["imagePullPolicy"], policies)
    for index, variable in enumerate(container.get("env") or []):
        name = variable.get("name") or ""
        if not name:
            yield Cause.required(f"{field}.env[{index}].name")
        elif not _ENV_NAME.fullmatch(name):
            yield Cause.invalid(
                f"{field}.env[{index}].name",
                name,
                "a valid environment variable name must consist of"
                " alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
            )
        if variable.get("value") and variable.get("valueFrom"):
            yield Cause.invalid(f"{field}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty")
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            yield Cause.not_found(f"{field}.volumeMounts[{index}].name", str(mount.get("name") or ""))
        if not mount.get("mountPath"):
            yield Cause.required(f"{field}.volumeMounts[{index}].mountPath")
    for index, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort")
        if not isinstance(number, int) or not 0 < number < 65536:
            yield Cause.invalid(
                f"{field}.ports[{index}].containerPort", number, "must be between 1 and 65535, inclusive"
            )
    yield from _amount_faults(f"{field}.resources", container["resources"])


def _amount_faults(field: str, needs: Manifest) -> Iterator[Cause]:
    limits, requests = needs.get("limits") or {}, needs.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            where = f"{field}.{kind}[{name}]"
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
            yield Cause.invalid(where, str(amount), f"must be equal to {name} limit")
        elif request > limit:
            yield Cause.invalid(where, str(amount), f"must be less than or equal to {name} limit")


def _toleration_faults(field: str, toleration: Manifest) -> Iterator[Cause]:
    operator: Any = toleration.get("operator") or "Equal"
    if operator not in (known := ("Equal", "Exists")):
        yield Cause.unsupported(f"{field}.operator", operator, known)
    elif operator == "Equal" and not toleration.get("key"):
        yield Cause.invalid(f"{field}.operator", operator, "operator must be Exists when `key` is empty")
    elif operator == "Exists" and toleration.get("value"):
        yield Cause.invalid(f"{field}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    effect = toleration.get("effect")
    if effect and effect not in (effects := ("NoSchedule", "PreferNoSchedule", "NoExecute")):
        yield Cause.unsupported(f"{field}.effect", effect, effects)
