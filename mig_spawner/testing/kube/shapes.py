"""Is each field of an object of the kind that its name promises? What is not cannot be decoded: 400.

Only the fields that something here reads are known; what stands in other fields is kept unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OBJECTS = _words(
    "affinity configMapKeyRef configMapRef fieldRef involvedObject metadata nodeAffinity persistentVolumeClaim"
    " requiredDuringSchedulingIgnoredDuringExecution resourceFieldRef roleRef secretKeyRef secretRef securityContext"
    " spec target valueFrom"
)
_UNREAD_OBJECTS = _words("allocatable attributes binaryData capacity data fieldsV1 hard limits requests used")
_STRING_MAPS = _words("annotations labels nodeSelector stringData")
_OBJECT_LISTS = _words(
    "allocatedResourcesStatus conditions containerStatuses containers env envFrom imagePullSecrets initContainers"
    " managedFields matchExpressions matchFields nodeSelectorTerms ownerReferences ports rules subjects taints"
    " tolerations volumeMounts volumes"
)
_STRING_LISTS = _words("accessModes apiGroups args command finalizers resourceNames values verbs")
_STRINGS = _words(
    "claimName clusterIP effect fieldPath generateName image imagePullPolicy key mountPath name namespace nodeName"
    " operator phase priorityClassName restartPolicy runtimeClassName schedulerName serviceAccount serviceAccountName"
    " storageClassName subPath type uid volumeName workingDir"
)
_NUMBERS = _words(
    "containerPort deletionGracePeriodSeconds leaseDurationSeconds priority terminationGracePeriodSeconds"
)


def find_misshapen(value: Any, path: str = "", parent: str = "") -> Iterator[tuple[str, str]]:
    """The path of each misshapen field, with what it should have been."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_misshapen(item, f"{path}[{index}]", parent)
    elif isinstance(value, dict):
        for key, item in value.items():
            where = f"{path}.{key}" if path else str(key)
            expected = None if item is None else _expected(parent, str(key), item)
            if expected:
                yield where, f"expected {expected}, got {type(item).__name__}"
            elif key not in _UNREAD_OBJECTS and key not in _STRING_MAPS:
                yield from find_misshapen(item, where, str(key))


def _expected(parent: str, key: str, value: Any) -> str | None:
    """What the field should have been, or `None` when it is that."""
    is_text = key in _STRING_MAPS or (key, parent) == ("data", "")  # of a config map or a secret
    if is_text and not (isinstance(value, dict) and all(isinstance(item, str) for item in value.values())):
        return "a map of strings"
    if (key, parent) == ("requests", "devices"):  # of a claim, elsewhere they are amounts
        return None if _is_list_of(value, dict) else "a list of objects"
    is_object = key in _OBJECTS or key in _UNREAD_OBJECTS or (key, parent) == ("status", "")
    if is_object and not isinstance(value, dict):
        return "an object"
    if key == "resources":
        return _expected_resources(parent, value)
    if key in _OBJECT_LISTS and not _is_list_of(value, dict):
        return "a list of objects"
    if key in _STRING_LISTS and not _is_list_of(value, str):
        return "a list of strings"
    if (key in _STRINGS or (key, parent) in {("value", "env"), ("value", "tolerations")}) and not isinstance(
        value, str
    ):
        return "a string"
    if key in _NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
        return "a whole number"
    return None


def _expected_resources(parent: str, value: Any) -> str | None:
    """Of a container, of a role's rule, or what a device plugin gave a container."""
    match parent:
        case "rules":
            return None if _is_list_of(value, str) else "a list of strings"
        case "allocatedResourcesStatus":
            return None if _is_list_of(value, dict) else "a list of objects"
        case _:
            return None if isinstance(value, dict) else "an object"


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
