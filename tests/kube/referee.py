"""A real API server as the judge of every pod that the embedded one was asked to make.

    from tests.kube.referee import referee  # in a conftest.py

The embedded server does not know every field of a pod. What it has accepted is therefore asked of a real one again, as a strict
dry run: nothing is stored, and an unknown field, a wrong type or a forbidden value is told.
"""

from __future__ import annotations

import copy
import json
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from mig_spawner.testing.controlplane.run import ControlPlane
from mig_spawner.testing.kube.audit import created
from tests.controlplane.assets import in_ci, locate

NAME: Final = "referee"
PATIENCE_S: Final = 20.0
LOOK_EVERY_S: Final = 0.05
_READ_ONLY: Final = ("uid", "resourceVersion", "creationTimestamp", "namespace", "generation", "managedFields")


class Referee:
    """Judges pods by a real API server; each distinct pod once."""

    def __init__(self, plane: ControlPlane) -> None:
        context = ssl.create_default_context(cafile=plane.ca_file)
        headers = {"Authorization": f"Bearer {plane.token()}"}
        self._http = httpx.Client(base_url=plane.url, verify=context, headers=headers, trust_env=False, timeout=10)
        self._known: dict[str, list[str]] = {}
        self._judged: dict[Path, int] = {}
        self._make("/api/v1/namespaces", {"metadata": {"name": NAME}})
        self._make("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": NAME}, "handler": NAME})

    def close(self) -> None:
        self._http.close()

    def faults(self, pod: dict[str, Any]) -> list[str]:
        """What a cluster would refuse, or warn of, in a pod."""
        asked = _movable(pod)
        key = json.dumps(asked, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._ask(asked)
        return self._known[key]

    def judge(self, audit_log: Path) -> None:
        """Every pod that a log says was created, since it was last judged, must be valid."""
        pods = list(created(audit_log, "pods"))
        judged, self._judged[audit_log] = self._judged.get(audit_log, 0), len(pods)
        for pod in pods[judged:]:
            faults = self.faults(pod)
            assert not faults, f"the pod {pod['metadata'].get('name')} is not valid: {faults}"

    def _ask(self, pod: dict[str, Any]) -> list[str]:
        path = f"/api/v1/namespaces/{NAME}/pods?dryRun=All&fieldValidation=Strict"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = self._http.post(path, json=pod)
            except httpx.TransportError:
                # Another test may just have the API server start again.
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_EVERY_S)
                continue
            # The account of a new namespace, and a new class, are known a moment late.
            if answer.status_code != 403 or time.monotonic() > deadline:
                break
            time.sleep(LOOK_EVERY_S)
        warnings = answer.headers.get_list("Warning")
        return warnings if answer.is_success else [*warnings, answer.json()["message"]]

    def _make(self, path: str, body: dict[str, Any]) -> None:
        answer = self._http.post(path, json=body)
        assert answer.status_code in {201, 409}, answer.text


def _movable(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod as it can be asked for in the referee's namespace, with its account and its runtime class."""
    moved = copy.deepcopy(pod)
    metadata, spec = moved["metadata"], moved["spec"]
    for name in _READ_ONLY:
        metadata.pop(name, None)
    metadata["name"] = NAME
    moved.pop("status", None)
    for name in ("serviceAccount", "serviceAccountName"):
        spec.pop(name, None)
    if spec.get("runtimeClassName"):
        spec["runtimeClassName"] = NAME
    return moved


@pytest.fixture(scope="session")
def referee(request: pytest.FixtureRequest) -> Iterator[Referee | None]:
    """None outside CI where there is no control plane: those who work on the spawner need none."""
    if locate(os.environ) is None and not in_ci(os.environ):
        yield None
        return
    judge = Referee(request.getfixturevalue("control_plane"))
    yield judge
    judge.close()
