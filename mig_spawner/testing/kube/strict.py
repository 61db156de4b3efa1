"""Strict validation for every Kubernetes client of this process: a server refuses an unknown field instead of dropping it.

Clusters drop unknown fields in silence, so that a pod with a misspelt field runs, and not as its author meant it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kubernetes_asyncio import client

WRITES: Final = frozenset({"POST", "PUT", "PATCH"})

Request = Callable[..., Awaitable[Any]]


def strict(ask: Request) -> Request:
    """`ApiClient.request`, asking for strict validation with everything that it writes."""

    async def request(self: client.ApiClient, method: str, url: str, query_params: Any = None, **options: Any) -> Any:
        if method in WRITES:
            given = [(name, value) for name, value in query_params or [] if name != "fieldValidation"]
            query_params = [*given, ("fieldValidation", "Strict")]
        return await ask(self, method, url, query_params=query_params, **options)

    return request


def ask_for_strict_validation() -> None:
    """From now on, also for clients that somebody else makes: KubeSpawner's pods are held to it like ours."""
    client.ApiClient.request = strict(client.ApiClient.request)  # type: ignore[method-assign]
