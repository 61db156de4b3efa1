"""What does a request want? From method, path and query to a verb on a resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mig_spawner.testing.kube.errors import NoSuchPage, method_not_allowed, no_such_path
from mig_spawner.testing.kube.resources import ACCESS_REVIEWS, GROUPS, NAMESPACES, Resource, find_resource

_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True)
class Target:
    """A verb on a resource: on all of them (no name), on one object, or on a subresource of it."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str


def parse_path(method: str, path: str, query: Mapping[str, str]) -> Target:
    """Raises `StatusError` 404 for an unknown path of an API group and 405 for a verb that the path does not know, and
    `NoSuchPage` for everything else."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest] if group in GROUPS:
            pass
        case _:
            raise NoSuchPage
    namespace = ""
    match rest:
        case ["namespaces", namespace, plural, *tail] if plural not in NAMESPACES.subresources:
            pass
        case [plural, *tail]:
            pass
        case _:
            raise no_such_path()
    resource = find_resource(group, version, plural)
    if resource is None or len(tail) > 2 or (namespace and not resource.namespaced):
        raise no_such_path()
    name = tail[0] if tail else ""
    subresource = tail[1] if len(tail) == 2 else ""
    if subresource and subresource not in resource.subresources:
        raise no_such_path()
    return Target(_verb(method, resource, namespace, name, subresource, query), resource, namespace, name, subresource)


def parse_bool(text: str | None) -> bool:
    """A boolean of a query: whatever is there and does not say no means yes."""
    return text is not None and text.lower() not in {"0", "false"}


def _verb(
    method: str, resource: Resource, namespace: str, name: str, subresource: str, query: Mapping[str, str]
) -> str:
    if subresource in {"binding", "eviction"}:
        verb = "create" if method == "POST" else None
    elif name:
        verb = _ONE.get(method) if not subresource or method != "DELETE" else None
    else:
        verb = _MANY.get(method)
    if resource == ACCESS_REVIEWS and verb != "create":
        verb = None
    if verb in {"create", "deletecollection"} and resource.namespaced and not namespace:
        verb = None
    if verb == "deletecollection" and resource == NAMESPACES:
        verb = None
    if verb is None:
        raise method_not_allowed()
    if verb == "list" and parse_bool(query.get("watch")):
        return "watch"
    return verb
