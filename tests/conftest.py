"""What holds for every test."""

from __future__ import annotations

import pytest
from kubernetes_asyncio import client

from mig_spawner.testing.kube.strict import strict


@pytest.fixture(autouse=True)
def strict_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pod that a test has a Kubernetes client of this process make is valid to the last field.

    What other processes make on an embedded server goes before the `referee`.
    """
    monkeypatch.setattr(client.ApiClient, "request", strict(client.ApiClient.request))
