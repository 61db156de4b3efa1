"""Label and field selectors: which objects does a list or a watch mean?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mig_spawner.testing.kube.errors import bad_request
from mig_spawner.testing.kube.resources import Manifest, Resource

Selector = Callable[[Manifest], bool]
Test = Callable[[str | None], bool]

_TERM = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s=!,()<>]+)
      | (?P<set_key>[^\s=!,()<>]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<key>[^\s=!,()<>]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=!,()<>]*)
      | (?P<exists>[^\s=!,()<>]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)

_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.hostNetwork",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
        "status.phase",
        "status.podIP",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "resourceslices": ("spec.driver", "spec.nodeName"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


_FLAGS = {"spec.hostNetwork", "spec.unschedulable"}  # absent means no


def everything(_: Manifest) -> bool:
    """The selector that leaves nothing out."""
    return True


def parse_selectors(resource: Resource, labels: str, fields: str) -> Selector:
    """The conjunction of both; either may be empty. Raises `StatusError` 400 for what cannot be understood."""
    by_label = _parse_labels(labels) if labels.strip() else []
    by_field = _parse_fields(resource, fields) if fields.strip() else []
    if not by_label and not by_field:
        return everything

    def selects(obj: Manifest) -> bool:
        own = obj["metadata"].get("labels") or {}
        return all(test(own.get(key)) for key, test in by_label) and all(
            test(read_field(obj, path)) for path, test in by_field
        )

    return selects


def read_field(obj: Mapping[str, Any], path: str) -> str:
    """The value at a dotted path as field selectors see it: absent is the empty string."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):  # `source` of an event means its component
        value = value.get("component")
    if isinstance(value, bool) or path in _FLAGS:
        return "true" if value else "false"
    return "" if value is None else str(value)


def _parse_labels(text: str) -> list[tuple[str, Test]]:
    tests: list[tuple[str, Test]] = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or match.end() == position:
            raise bad_request(f"unable to parse requirement: {text[position:]!r}")
        position = match.end()
        tests.append(_label_test(match))
    return tests


def _label_test(match: re.Match[str]) -> tuple[str, Test]:
    groups = match.groupdict()
    if groups["absent"]:
        return groups["absent"], lambda value: value is None
    if groups["exists"]:
        return groups["exists"], lambda value: value is not None
    if groups["set_key"]:
        values = frozenset(value.strip() for value in groups["values"].split(","))
        if groups["set_op"] == "in":
            return groups["set_key"], lambda value: value in values
        return groups["set_key"], lambda value: value not in values
    wanted = groups["value"]
    if groups["op"] == "!=":
        return groups["key"], lambda value: value != wanted
    return groups["key"], lambda value: value == wanted


def _parse_fields(resource: Resource, text: str) -> list[tuple[str, Test]]:
    place = ("metadata.name", "metadata.namespace") if resource.namespaced else ("metadata.name",)
    known: Sequence[str] = (*place, *_FIELDS.get(resource.plural, ()))
    tests: list[tuple[str, Test]] = []
    for term in filter(None, (term.strip() for term in text.split(","))):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
        path, operator, wanted = match.groups()
        if path not in known:
            raise bad_request(f"field label not supported: {path}")
        tests.append((path, _differs(wanted) if operator == "!=" else _equals(wanted)))
    return tests


def _equals(wanted: str) -> Test:
    return lambda value: value == wanted


def _differs(wanted: str) -> Test:
    return lambda value: value != wanted
