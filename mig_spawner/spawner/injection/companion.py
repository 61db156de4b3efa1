"""Creating what a way needs beside the pod, with no more rights than it takes, and finding out beforehand whether the hub has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from kubernetes_asyncio.client import ApiClient, ApiException, AuthorizationV1Api, CustomObjectsApi, V1Pod

from mig_spawner.spawner.injection.base import Companion, Right

_AGAIN_S: Final = 0.5


async def missing_rights(api: ApiClient, namespace: str, rights: Iterable[Right], *, timeout_s: float) -> list[str]:
    """What this hub may not do, as `create resourceclaims.resource.k8s.io`; what cannot be found out counts as allowed.

    Everybody may ask this about themselves.
    """
    asked = [(right, verb) for right in rights for verb in right.verbs]
    answers = await asyncio.gather(*(_may(api, namespace, right, verb, timeout_s) for right, verb in asked))
    return [
        f"{verb} {right.resource}.{right.group}" for (right, verb), may in zip(asked, answers, strict=True) if not may
    ]


async def _may(api: ApiClient, namespace: str, right: Right, verb: str, timeout_s: float) -> bool:
    attributes = {"namespace": namespace, "verb": verb, "group": right.group, "resource": right.resource}
    review: Any = {"spec": {"resourceAttributes": attributes}}
    try:
        async with asyncio.timeout(timeout_s):
            answer = await AuthorizationV1Api(api).create_self_subject_access_review(review)
    except Exception:  # whatever it is, creating will tell
        return True
    return bool(answer.status.allowed)


async def create(
    api: ApiClient, namespace: str, companion: Companion, owner: V1Pod, *, timeout_s: float, within_s: float
) -> None:
    """Create something that a pod owns. Its name is its own, so where it is there already an earlier try has made it.

    Args:
        timeout_s: for one request.
        within_s: for all tries.

    Raises:
        ApiException: the API server refuses it.
        TimeoutError: it did not answer.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner.metadata.name, "uid": owner.metadata.uid}
    metadata = {**companion.manifest["metadata"], "ownerReferences": [reference]}
    body: Any = {**companion.manifest, "metadata": metadata}
    where = (companion.group, companion.version, namespace, companion.plural)
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                await CustomObjectsApi(api).create_namespaced_custom_object(*where, body, field_validation="Strict")
            return
        except ApiException as error:
            if error.status == 409:
                return
            if (error.status or 500) < 500 or loop.time() >= until:
                raise
        except (TimeoutError, OSError) as error:
            if loop.time() >= until:
                kind = companion.manifest["kind"]
                raise TimeoutError(f"{kind} {companion.name} could not be created in {within_s:.0f} s") from error
        await asyncio.sleep(_AGAIN_S)
