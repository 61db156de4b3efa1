"""Every write that a Kubernetes client of this process sends asks for strict validation: an unknown field is refused.

Clusters drop unknown fields in silence, so that a pod with a misspelt field runs, and not as its author meant it.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio import client

WRITES = frozenset({"POST", "PUT", "PATCH"})


def ask_for_strict_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends, also for clients that somebody else makes: KubeSpawner's pods are held to it like ours."""
    ask = client.ApiClient.request

    async def request(self: client.ApiClient, method: str, url: str, query_params: Any = None, **options: Any) -> Any:
        if method in WRITES:
            given = [(name, value) for name, value in query_params or [] if name != "fieldValidation"]
            query_params = [*given, ("fieldValidation", "Strict")]
        return await ask(self, method, url, query_params=query_params, **options)

    monkeypatch.setattr(client.ApiClient, "request", request)
