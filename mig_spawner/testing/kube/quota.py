"""ResourceQuota: what a namespace may hold, what it holds, and the refusal in between.

Counts pods, claims, `count/...` of every kind, CPU and memory as requests and limits, storage, and extended resources
(`requests.nvidia.com/mig-1g.10gb`). Quotas with scopes count everything, as if they had none.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.errors import forbidden
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.pod_validation import is_extended
from mig_spawner.testing.kube.quantities import format_quantity, parse_quantity
from mig_spawner.testing.kube.resources import Manifest, Resource

Amounts = dict[str, Fraction]

_COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def check_quota(objects: Objects, resource: Resource, obj: Manifest) -> None:
    """Raises `StatusError` 403 when the new object does not fit into a quota of its namespace."""
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    charged = _charge(resource, obj)
    for quota in objects.all(resources.QUOTAS, namespace):
        hard = _amounts((quota.get("spec") or {}).get("hard"))
        label = quota["metadata"]["name"]
        if resource == resources.PODS and (missing := [key for key in _COMPUTE if key in hard and key not in charged]):
            raise forbidden(resource, name, f"failed quota: {label}: must specify {','.join(missing)}")
        used = _used(objects, namespace, hard)
        over = [key for key in hard if key in charged and charged[key] > 0 and used[key] + charged[key] > hard[key]]
        if over:
            raise forbidden(
                resource,
                name,
                f"exceeded quota: {label}, requested: {_listed(charged, over)}, used: {_listed(used, over)},"
                f" limited: {_listed(hard, over)}",
            )


def refresh_quotas(objects: Objects, namespace: str) -> None:
    """Brings `status` of the namespace's quotas up to date."""
    for quota in objects.all(resources.QUOTAS, namespace):
        hard = (quota.get("spec") or {}).get("hard") or {}
        used = _used(objects, namespace, hard)
        status = {"hard": hard, "used": {key: format_quantity(used[key]) for key in hard}}
        objects.put(resources.QUOTAS, {**quota, "status": status})


def _used(objects: Objects, namespace: str, keys: Iterable[str]) -> Amounts:
    used: Amounts = dict.fromkeys(keys, Fraction(0))
    for resource, obj in objects.everything():
        if obj["metadata"].get("namespace") != namespace:
            continue
        for key, amount in _charge(resource, obj).items():
            if key in used:
                used[key] += amount
    return used


def _charge(resource: Resource, obj: Manifest) -> Amounts:
    charged: Amounts = {f"count/{resource.qualified}": Fraction(1), resource.plural: Fraction(1)}
    if resource == resources.CLAIMS:
        charged |= {f"requests.{key}": value for key, value in _amounts(_requests(obj["spec"])).items()}
    if resource == resources.PODS:
        if (obj.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            return {}
        for kind in ("requests", "limits"):
            for key, amount in _pod_amounts(obj, kind).items():
                if kind == "limits" and is_extended(key):
                    continue
                charged[f"{kind}.{key}"] = amount
                if kind == "requests" and not is_extended(key):
                    charged[key] = amount
    return charged


def _requests(spec: Manifest) -> Manifest:
    requests: Manifest = (spec.get("resources") or {}).get("requests") or {}
    return requests


def _pod_amounts(pod: Manifest, kind: str) -> Amounts:
    total: Amounts = {}
    for container in pod["spec"]["containers"]:
        for key, amount in _amounts((container.get("resources") or {}).get(kind)).items():
            total[key] = total.get(key, Fraction(0)) + amount
    return total


def _amounts(quantities: Manifest | None) -> Amounts:
    return {key: parse_quantity(value) for key, value in (quantities or {}).items()}


def _listed(amounts: Amounts, keys: Iterable[str]) -> str:
    return ",".join(f"{key}={format_quantity(amounts[key])}" for key in sorted(keys))
