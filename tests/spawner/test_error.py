"""What a node says of a pod that it does not take."""

from __future__ import annotations

from typing import Any

import pytest

from mig_spawner.spawner.error import Reason, node_refusal


def pod(node: str | None = "gpu-a", **status: Any) -> dict[str, Any]:
    return {"spec": {"nodeName": node}, "status": status}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            pod(phase="Failed", reason="UnexpectedAdmissionError", message="Pod was rejected: Allocate failed."),
            "The node gpu-a did not take this server (UnexpectedAdmissionError): Allocate failed. Try again, or tell an admin of this hub.",
        ),
        (
            pod(None, phase="Failed", reason="OutOfmemory"),
            "Its node did not take this server (OutOfmemory): It gives no reason. Try again, or tell an admin of this hub.",
        ),
    ],
    ids=["device plugin", "no words"],
)
def test_what_a_node_refused_is_a_sentence(found: dict[str, Any], sentence: str) -> None:
    refusal = node_refusal(found)
    assert refusal is not None
    assert refusal.message == sentence
    assert refusal.reason == Reason.CAPACITY.value


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        pod(phase="Pending"),
        pod(phase="Running", reason="UnexpectedAdmissionError"),
        pod(phase="Failed"),
        pod(phase="Failed", reason="Evicted", containerStatuses=[{"name": "notebook"}]),
    ],
    ids=str,
)
def test_any_other_pod_was_not_refused(found: dict[str, Any] | None) -> None:
    assert node_refusal(found) is None
