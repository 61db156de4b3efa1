"""Who asks, and may they? Bearer tokens name users; Roles and their bindings say what a user may do (RBAC)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.errors import StatusError, unauthorized
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.resources import Manifest

MASTERS = "system:masters"


@dataclass(frozen=True)
class KubeUser:
    """A user as Kubernetes sees one; members of `system:masters` may do anything.

    A service account is the user `system:serviceaccount:{namespace}:{name}`.
    """

    name: str
    groups: tuple[str, ...] = ()


ADMIN = KubeUser("admin", (MASTERS,))


@dataclass(frozen=True)
class Attempt:
    """What somebody wants to do: a verb on a resource (`pods`, or `pods/status`), perhaps on one object of it."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Access:
    """Tells users by their tokens and looks up their rights in the stored roles."""

    def __init__(self, objects: Objects, tokens: Mapping[str, KubeUser] | None, *, anonymous: bool) -> None:
        """`tokens` of `None` makes every token an admin's; `anonymous` makes a request without token an admin's."""
        self._objects = objects
        self._tokens = tokens
        self._anonymous = anonymous

    def identify(self, authorization: str | None) -> KubeUser:
        """The user behind an `Authorization` header. Raises `StatusError` 401."""
        if not authorization:
            if self._anonymous:
                return ADMIN
            raise unauthorized()
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized()
        if self._tokens is None:
            return ADMIN
        user = self._tokens.get(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def require(self, user: KubeUser, attempt: Attempt) -> None:
        """Raises `StatusError` 403 when the user may not."""
        if self.allows(user, attempt):
            return
        scope = f'in the namespace "{attempt.namespace}"' if attempt.namespace else "at the cluster scope"
        plural, _, _ = attempt.resource.partition("/")
        qualified = f"{plural}.{attempt.group}" if attempt.group else plural
        subject = f'{qualified} "{attempt.name}"' if attempt.name else qualified
        raise StatusError(
            403,
            "Forbidden",
            f'{subject} is forbidden: User "{user.name}" cannot {attempt.verb} resource "{attempt.resource}"'
            f' in API group "{attempt.group}" {scope}',
            {"name": attempt.name, "group": attempt.group, "kind": plural},
        )

    def allows(self, user: KubeUser, attempt: Attempt) -> bool:
        """Whether some role that is bound to the user grants the attempt."""
        if MASTERS in user.groups:
            return True
        return any(_grants(rule, attempt) for rule in self._rules(user, attempt.namespace))

    def _rules(self, user: KubeUser, namespace: str) -> Iterator[Manifest]:
        for binding in self._objects.all(resources.CLUSTER_ROLE_BINDINGS):
            if _binds(binding, user, ""):
                yield from self._rules_of(binding["roleRef"], "")
        for binding in self._objects.all(resources.ROLE_BINDINGS, namespace) if namespace else []:
            if _binds(binding, user, namespace):
                yield from self._rules_of(binding["roleRef"], namespace)

    def _rules_of(self, reference: Manifest, namespace: str) -> list[Manifest]:
        is_cluster_wide = reference.get("kind") == "ClusterRole"
        resource = resources.CLUSTER_ROLES if is_cluster_wide else resources.ROLES
        role = self._objects.find(resource, "" if is_cluster_wide else namespace, reference["name"])
        return (role or {}).get("rules") or []


def _binds(binding: Manifest, user: KubeUser, namespace: str) -> bool:
    for subject in binding.get("subjects") or []:
        name = subject.get("name")
        match subject.get("kind"):
            case "User" if name == user.name:
                return True
            case "Group" if name in user.groups or name == "system:authenticated":
                return True
            case "ServiceAccount":
                home = subject.get("namespace") or namespace
                if user.name == f"system:serviceaccount:{home}:{name}":
                    return True
            case _:
                pass
    return False


def _grants(rule: Manifest, attempt: Attempt) -> bool:
    named = rule.get("resourceNames") or []
    return (
        _lists(rule, "verbs", attempt.verb)
        and _lists(rule, "apiGroups", attempt.group)
        and (
            _lists(rule, "resources", attempt.resource)
            or f"*/{attempt.resource.partition('/')[2]}" in rule["resources"]
        )
        and (not named or attempt.name in named)
    )


def _lists(rule: Manifest, key: str, wanted: str) -> bool:
    listed = rule.get(key) or []
    return wanted in listed or "*" in listed
