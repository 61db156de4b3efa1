"""What the API fills in: names, times, and everything about a pod that its author left unsaid."""

from __future__ import annotations

import base64
import secrets as random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.resources import Manifest, Resource

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


_FACTS = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion"),
    *("kubeProxyVersion", "operatingSystem", "architecture"),
)
"""What a node may tell of itself."""


def timestamp() -> str:
    """Now, in the API's form: UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(prefix: str) -> str:
    """A fresh name for `generateName`."""
    return prefix[:58] + "".join(random.choice(_SUFFIX_LETTERS) for _ in range(5))


def new_uid() -> str:
    return str(uuid.uuid4())


def fill_defaults(resource: Resource, obj: Manifest) -> None:
    """Completes an object in place, on create and on every change; what is already said stays."""
    if (fill := _FILL.get(resource)) is not None:
        fill(obj)


def initial_status(resource: Resource, obj: Manifest) -> Manifest | None:
    """The status of a new object. Only nodes bring their own; elsewhere the API does not listen to what was given."""
    given: Manifest | None = obj.get("status")
    match resource:
        case resources.PODS:
            return {"phase": "Pending", "qosClass": _qos_class(obj["spec"])}
        case resources.NODES:
            return {
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": dict.fromkeys(_FACTS, ""),
                **(given or {}),
            }
        case resources.NAMESPACES:
            return {"phase": "Active"}
        case resources.CLAIMS | resources.VOLUMES:
            return {"phase": "Pending"}
        case resources.SERVICES:
            return {"loadBalancer": {}}
        case resources.QUOTAS:
            return {}
        case _:
            return given


def _qos_class(spec: Manifest) -> str:
    needs = [container.get("resources") or {} for container in spec["containers"]]
    classed = [{kind: (need.get(kind) or {}) for kind in ("requests", "limits")} for need in needs]
    named = ("cpu", "memory")
    if not any(key in need[kind] for need in classed for kind in need for key in named):
        return "BestEffort"
    for need in classed:
        if any(need["limits"].get(key) is None or need["requests"].get(key) != need["limits"][key] for key in named):
            return "Burstable"
    return "Guaranteed"


def _set(target: Manifest, **values: Any) -> None:
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


def _fill_pod(pod: Manifest) -> None:
    spec = pod.setdefault("spec", {})
    _set(
        spec,
        restartPolicy="Always",
        dnsPolicy="ClusterFirst",
        terminationGracePeriodSeconds=30,
        schedulerName="default-scheduler",
        securityContext={},
        enableServiceLinks=True,
        serviceAccountName=spec.get("serviceAccount") or "default",
    )
    _set(spec, serviceAccount=spec["serviceAccountName"])
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        _fill_container(container)
    for volume in spec.get("volumes") or []:
        _fill_volume(volume)


def _fill_container(container: Manifest) -> None:
    image = str(container.get("image") or "")
    is_latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    _set(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if is_latest and "@" not in image else "IfNotPresent",
        resources={},
    )
    limits = container["resources"].get("limits") or {}
    if limits:
        container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}
    for port in container.get("ports") or []:
        _set(port, protocol="TCP")
    for variable in container.get("env") or []:
        _fill_references(variable.get("valueFrom") or {})


def _fill_references(source: Manifest) -> None:
    if (reference := source.get("fieldRef")) is not None:
        _set(reference, apiVersion="v1")
    if (reference := source.get("resourceFieldRef")) is not None:
        _set(reference, divisor="0")


def _fill_volume(volume: Manifest) -> None:
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(kind), dict):
            _set(volume[kind], defaultMode=420)
    if isinstance(volume.get("hostPath"), dict):
        _set(volume["hostPath"], type="")
    projected = volume.get("projected") or {}
    for source in [volume, *(projected.get("sources") or [])]:
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            _fill_references(item)
        if token := source.get("serviceAccountToken"):
            _set(token, expirationSeconds=3600)


def _fill_service(service: Manifest) -> None:
    spec = service.setdefault("spec", {})
    _set(spec, type="ClusterIP", sessionAffinity="None")
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    for port in spec.get("ports") or []:
        _set(port, protocol="TCP", targetPort=port.get("port"))


def _fill_secret(secret: Manifest) -> None:
    _set(secret, type="Opaque")
    written = secret.pop("stringData", None) or {}
    if written:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in written.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _fill_claim(claim: Manifest) -> None:
    _set(claim.setdefault("spec", {}), volumeMode="Filesystem")


def _fill_volume_object(volume: Manifest) -> None:
    spec = volume.setdefault("spec", {})
    _set(spec, volumeMode="Filesystem", persistentVolumeReclaimPolicy="Retain")
    if isinstance(spec.get("hostPath"), dict):
        _set(spec["hostPath"], type="")


def _fill_storage_class(storage_class: Manifest) -> None:
    _set(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _fill_event(event: Manifest) -> None:
    # KubeSpawner reads these without asking whether they are there.
    for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(key, None)
    _set(event, source={}, reportingComponent="", reportingInstance="")


def _fill_namespace(namespace: Manifest) -> None:
    metadata = namespace["metadata"]
    _set(namespace.setdefault("spec", {}), finalizers=["kubernetes"])
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}


def _fill_node(node: Manifest) -> None:
    node.setdefault("spec", {})


def _fill_priority_class(priority_class: Manifest) -> None:
    _set(priority_class, preemptionPolicy="PreemptLowerPriority")


def _fill_binding(binding: Manifest) -> None:
    _set(binding.setdefault("roleRef", {}), apiGroup=resources.RBAC)
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in {"User", "Group"}:
            _set(subject, apiGroup=resources.RBAC)


_FILL: dict[Resource, Callable[[Manifest], None]] = {
    resources.PODS: _fill_pod,
    resources.SERVICES: _fill_service,
    resources.SECRETS: _fill_secret,
    resources.CLAIMS: _fill_claim,
    resources.VOLUMES: _fill_volume_object,
    resources.STORAGE_CLASSES: _fill_storage_class,
    resources.EVENTS: _fill_event,
    resources.NAMESPACES: _fill_namespace,
    resources.NODES: _fill_node,
    resources.PRIORITY_CLASSES: _fill_priority_class,
    resources.ROLE_BINDINGS: _fill_binding,
    resources.CLUSTER_ROLE_BINDINGS: _fill_binding,
}
