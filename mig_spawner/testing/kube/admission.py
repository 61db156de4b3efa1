"""What the API asks of an object beyond its form: does what it names exist, and what follows from that?"""

from __future__ import annotations

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.defaults import generated_name
from mig_spawner.testing.kube.errors import forbidden, not_found
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.resources import Manifest, Resource

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
_ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_S = 3607
"""An hour, and so odd that one sees that nobody asked for it."""


def admit(objects: Objects, resource: Resource, obj: Manifest) -> None:
    """Completes a new object in place from what it names. Raises `StatusError` 403 or 404."""
    namespace = obj["metadata"].get("namespace", "")
    if resource.namespaced:
        _admit_into_namespace(objects, resource, obj, namespace)
    if resource == resources.PODS:
        _admit_service_account(objects, obj, namespace)
        _admit_priority(objects, obj)
        _admit_runtime_class(objects, obj)
        _add_default_tolerations(obj["spec"])
    elif resource == resources.CLAIMS:
        metadata = obj["metadata"]
        metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or []), CLAIM_PROTECTION]))
    elif resource == resources.SERVICES and obj["spec"]["type"] != "ExternalName":
        obj["spec"].setdefault("clusterIP", _free_address(objects))
        obj["spec"].setdefault("clusterIPs", [obj["spec"]["clusterIP"]])


def admit_change(resource: Resource, obj: Manifest) -> None:
    """Completes a changed object in place, where the API does so again and again."""
    if resource == resources.PODS:
        _add_default_tolerations(obj["spec"])


def _admit_into_namespace(objects: Objects, resource: Resource, obj: Manifest, namespace: str) -> None:
    home = objects.find(resources.NAMESPACES, "", namespace)
    if home is None:
        raise not_found(resources.NAMESPACES, namespace)
    if home["metadata"].get("deletionTimestamp"):
        raise forbidden(
            resource,
            obj["metadata"].get("name", ""),
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )


def _admit_service_account(objects: Objects, pod: Manifest, namespace: str) -> None:
    account = pod["spec"]["serviceAccountName"]
    found = objects.find(resources.SERVICE_ACCOUNTS, namespace, account)
    if found is None:
        raise forbidden(
            resources.PODS,
            pod["metadata"].get("name", ""),
            f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found',
        )
    wanted = pod["spec"].get("automountServiceAccountToken")
    if found.get("automountServiceAccountToken", True) if wanted is None else wanted:
        _mount_token(pod["spec"])


def _mount_token(spec: Manifest) -> None:
    """The token of the account, as a volume of every container that has nothing else in its place."""
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    without = [
        container
        for container in containers
        if not any(mount.get("mountPath") == _ACCOUNT_MOUNT for mount in container.get("volumeMounts") or [])
    ]
    if not without:
        return
    name = generated_name("kube-api-access-")
    for container in without:
        mount = {"name": name, "readOnly": True, "mountPath": _ACCOUNT_MOUNT}
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources: list[Manifest] = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    volume = {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]


def _admit_priority(objects: Objects, pod: Manifest) -> None:
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    classes = {found["metadata"]["name"]: found for found in objects.all(resources.PRIORITY_CLASSES)}
    if name:
        if (chosen := classes.get(name)) is None:
            raise forbidden(
                resources.PODS, pod["metadata"].get("name", ""), f"no PriorityClass with name {name} was found"
            )
    else:
        chosen = next((found for found in classes.values() if found.get("globalDefault")), None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    computed = chosen.get("value", 0) if chosen else 0
    if spec.get("priority") not in {None, computed}:
        raise forbidden(
            resources.PODS,
            pod["metadata"].get("name", ""),
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission"
            f" controller computed {computed} from the given PriorityClass name",
        )
    spec["priority"] = computed
    spec["preemptionPolicy"] = chosen["preemptionPolicy"] if chosen else "PreemptLowerPriority"


def _admit_runtime_class(objects: Objects, pod: Manifest) -> None:
    name = pod["spec"].get("runtimeClassName")
    if not name:
        return
    chosen = objects.find(resources.RUNTIME_CLASSES, "", name)
    if chosen is None:
        raise forbidden(
            resources.PODS,
            pod["metadata"].get("name", ""),
            f'pod rejected: RuntimeClass "{name}" not found',
        )
    if overhead := (chosen.get("overhead") or {}).get("podFixed"):
        pod["spec"]["overhead"] = overhead


def _add_default_tolerations(spec: Manifest) -> None:
    tolerations = list(spec.get("tolerations") or [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(toleration.get("key") in {key, None, ""} for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations


def _free_address(objects: Objects) -> str:
    taken = {(service.get("spec") or {}).get("clusterIP") for service in objects.all(resources.SERVICES)}
    candidates = (f"10.96.{index // 254}.{index % 254 + 1}" for index in range(254 * 254))
    return next(address for address in candidates if address not in taken)
