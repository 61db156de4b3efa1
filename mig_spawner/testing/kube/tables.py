"""The columns that `kubectl get` shows: the API renders them, not kubectl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.resources import Manifest, Resource

Cells = Callable[[Manifest], list[Any]]


def wants_table(accept: str) -> bool:
    """Whether the client would rather have a table than objects."""
    return "as=Table" in accept.partition(",")[0]


def as_table(resource: Resource, items: Sequence[Manifest]) -> Manifest:
    """The objects as rows, each with its name first and its age last."""
    columns, cells = _COLUMNS.get(resource, ((), lambda _: []))
    names = ("Name", *columns, "Age")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": 0,
            }
            for name in names
        ],
        "rows": [_row(obj, cells) for obj in items],
    }


def _row(obj: Manifest, cells: Cells) -> Manifest:
    metadata = obj["metadata"]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {"cells": [metadata["name"], *cells(obj), _age(metadata.get("creationTimestamp"))], "object": partial}


def _age(since: str | None) -> str:
    if not since:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(seconds, 0)}s"


def _pod(pod: Manifest) -> list[Any]:
    statuses = pod["status"].get("containerStatuses") or []
    ready = sum(1 for status in statuses if status.get("ready"))
    restarts = sum(int(status.get("restartCount", 0)) for status in statuses)
    return [f"{ready}/{len(pod['spec']['containers'])}", _pod_status(pod, statuses), str(restarts)]


def _pod_status(pod: Manifest, statuses: Sequence[Manifest]) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for status in statuses:
        state = status.get("state") or {}
        reason = (state.get("waiting") or state.get("terminated") or {}).get("reason")
        if reason:
            return str(reason)
    return str(pod["status"].get("phase", "Unknown"))


def _node(node: Manifest) -> list[Any]:
    conditions = {found["type"]: found["status"] for found in (node.get("status") or {}).get("conditions") or []}
    state = "Ready" if conditions.get("Ready") == "True" else "NotReady"
    if node["spec"].get("unschedulable"):
        state += ",SchedulingDisabled"
    return [state, ((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", "")]


def _claim(claim: Manifest) -> list[Any]:
    spec, status = claim["spec"], claim.get("status") or {}
    storage = (status.get("capacity") or {}).get("storage", "")
    return [status.get("phase", ""), spec.get("volumeName", ""), storage, ",".join(spec.get("accessModes") or [])]


def _event(event: Manifest) -> list[Any]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    name = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    return [event.get("type", ""), event.get("reason", ""), name, event.get("message") or event.get("note") or ""]


def _phase(obj: Manifest) -> list[Any]:
    return [(obj.get("status") or {}).get("phase", "")]


_COLUMNS: dict[Resource, tuple[tuple[str, ...], Cells]] = {
    resources.PODS: (("Ready", "Status", "Restarts"), _pod),
    resources.NODES: (("Status", "Version"), _node),
    resources.CLAIMS: (("Status", "Volume", "Capacity", "Access Modes"), _claim),
    resources.EVENTS: (("Type", "Reason", "Object", "Message"), _event),
    resources.EVENTS_V1: (("Type", "Reason", "Object", "Message"), _event),
    resources.NAMESPACES: (("Status",), _phase),
    resources.VOLUMES: (("Status",), _phase),
}
