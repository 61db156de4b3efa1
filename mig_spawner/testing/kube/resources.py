"""Which kinds of object the embedded API serves, and under which names.

A table and nothing else: a new kind is one more row. What a kind must look like is asked in `defaults` and
`validation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""

RBAC = "rbac.authorization.k8s.io"
DRA = "resource.k8s.io"

STANDARD_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One kind of object. `subresources` are the paths below an object that are served beside the object itself."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """What stands in `apiVersion`: `v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages and quotas: `pods`, `roles.rbac.authorization.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether `status` is written apart from the rest."""
        return "status" in self.subresources


def _core(plural: str, kind: str, *short: str, namespaced: bool = True, sub: tuple[str, ...] = ()) -> Resource:
    return Resource("", "v1", plural, kind, namespaced, short, frozenset(sub))


PODS = _core("pods", "Pod", "po", sub=("status", "binding", "eviction"))
NODES = _core("nodes", "Node", "no", namespaced=False, sub=("status",))
NAMESPACES = _core("namespaces", "Namespace", "ns", namespaced=False, sub=("status", "finalize"))
CLAIMS = _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", sub=("status",))
VOLUMES = _core("persistentvolumes", "PersistentVolume", "pv", namespaced=False, sub=("status",))
EVENTS = _core("events", "Event", "ev")
SERVICES = _core("services", "Service", "svc", sub=("status",))
SECRETS = _core("secrets", "Secret")
CONFIG_MAPS = _core("configmaps", "ConfigMap", "cm")
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount", "sa")
QUOTAS = _core("resourcequotas", "ResourceQuota", "quota", sub=("status",))
ROLES = Resource(RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",))
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, ("sc",))
DEVICE_CLASSES = Resource(DRA, "v1", "deviceclasses", "DeviceClass", False)
RESOURCE_CLAIMS = Resource(DRA, "v1", "resourceclaims", "ResourceClaim", subresources=frozenset({"status"}))
RESOURCE_CLAIM_TEMPLATES = Resource(DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
RESOURCE_SLICES = Resource(DRA, "v1", "resourceslices", "ResourceSlice", False)
"""Of dynamic resource allocation there are the objects only: nobody allocates."""
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS_V1 = Resource("events.k8s.io", "v1", "events", "Event", True, ("ev",))
"""The newer face of `EVENTS`: the same objects, other field names (see `events`)."""
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
"""Answered, never stored: 'may I do this?'."""

RESOURCES = (
    PODS,
    NODES,
    NAMESPACES,
    CLAIMS,
    VOLUMES,
    EVENTS,
    SERVICES,
    SECRETS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    QUOTAS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    LEASES,
    EVENTS_V1,
    ACCESS_REVIEWS,
)

GROUPS = frozenset(resource.group for resource in RESOURCES if resource.group)
"""The API groups besides the core one, which has no name."""

_BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """The resource served at `/api/{version}/{plural}` or `/apis/{group}/{version}/{plural}`."""
    return _BY_PATH.get((group, version, plural))
