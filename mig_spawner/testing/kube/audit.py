"""What an API server was asked to create and did create: one JSON document a line, as Kubernetes' own audit log writes them.

https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/ says what the fields mean. Only creations are here, with the whole
manifest as it was sent (level `Request`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mig_spawner.testing.kube.access import KubeUser
from mig_spawner.testing.kube.resources import Manifest, Resource


class AuditLog:
    """Appends to a file, whose folder is made if need be. Without a path it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def created(self, user: KubeUser, resource: Resource, namespace: str, sent: Manifest) -> None:
        """`sent` was created by `user`."""
        if self._path is None:
            return
        event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Request",
            "stage": "ResponseComplete",
            "verb": "create",
            "user": {"username": user.name, "groups": list(user.groups)},
            "objectRef": {
                "resource": resource.plural,
                "apiGroup": resource.group,
                "namespace": namespace,
                "name": sent["metadata"].get("name", ""),
            },
            "responseStatus": {"code": 201},
            "requestObject": sent,
            "stageTimestamp": datetime.now(UTC).isoformat(),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def created(path: Path, resource: str) -> Iterator[dict[str, Any]]:
    """The manifests of one resource (`pods`) that a log says were created, oldest first; none when there is no log."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["verb"] == "create" and event["objectRef"]["resource"] == resource:
            yield event["requestObject"]
