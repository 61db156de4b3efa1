"""Rights on a real cluster: who has which, and accounts that have exactly some."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kubernetes_asyncio import client

from tests.controlplane.corner import Corner, eventually

Rules = Sequence[dict[str, Any]]
Verb = tuple[str, str]
"""A resource and a verb."""

# What Zero to JupyterHub gives its hub.
HUB_RULES: Rules = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]


def verbs_of(rules: Rules) -> set[Verb]:
    """Each right on its own."""
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def rules_of(verbs: set[Verb]) -> Rules:
    """One rule of the core API per right."""
    return [{"apiGroups": [""], "resources": [resource], "verbs": [verb]} for resource, verb in sorted(verbs)]


@asynccontextmanager
async def account(corner: Corner, name: str) -> AsyncIterator[client.ApiClient]:
    """A client with a token that the API server has made for a service account of the corner."""
    token = await corner.core.create_namespaced_service_account_token(name, corner.namespace, {"spec": {}})
    configuration = copy.copy(corner.admin.configuration)
    configuration.api_key = {"BearerToken": token.status.token}
    configuration.api_key_prefix = {"BearerToken": "Bearer"}
    configuration.refresh_api_key_hook = None
    async with client.ApiClient(configuration) as own:
        yield own


async def told(own: client.ApiClient, namespace: str) -> set[str]:
    """All rules for somebody in a namespace, as the API server tells them."""
    asked: Any = {"spec": {"namespace": namespace}}
    review: Any = await client.AuthorizationV1Api(own).create_self_subject_rules_review(asked)
    assert not review.status.incomplete, review.status.evaluation_error
    return {json.dumps(rule.to_dict(), sort_keys=True) for rule in review.status.resource_rules}


async def told_verbs(own: client.ApiClient, namespace: str) -> set[Verb]:
    """The rights on resources of the core API that somebody has in a namespace."""
    rules = [json.loads(rule) for rule in await told(own, namespace)]
    core = [rule for rule in rules if set(rule["api_groups"]) & {"", "*"}]
    return {(resource, verb) for rule in core for resource in rule["resources"] or () for verb in rule["verbs"]}


async def grant(corner: Corner, subject: dict[str, str], own: client.ApiClient, verbs: set[Verb]) -> None:
    """Give exactly these rights on the core API, in place of those from before, and wait until they hold."""
    body = {"metadata": {"name": "under-test"}, "rules": rules_of(verbs)}
    name, namespace = "under-test", corner.namespace
    found = await corner.rbac.list_namespaced_role(namespace)
    if any(role.metadata.name == name for role in found.items):
        await corner.rbac.replace_namespaced_role(name, namespace, body)
    else:
        await corner.rbac.create_namespaced_role(namespace, body)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        await corner.rbac.create_namespaced_role_binding(namespace, binding)

    async def holds() -> bool:
        return await told_verbs(own, namespace) == verbs

    await eventually(holds, f"the rights {sorted(verbs)}")
