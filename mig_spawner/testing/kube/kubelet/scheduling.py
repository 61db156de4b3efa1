"""Where may a pod run? Values in, a node or a reason out; in the words of the real scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mig_spawner.testing.kube.quantities import parse_quantity
from mig_spawner.testing.kube.resources import Manifest

Amounts = dict[str, Fraction]


@dataclass(frozen=True)
class Unschedulable:
    """No node takes the pod; `message` is what `FailedScheduling` says."""

    message: str


def place(pod: Manifest, nodes: Sequence[Manifest], pods: Iterable[Manifest]) -> str | Unschedulable:
    """The name of the node for a pod, the emptiest of those that take it. `pods` are all pods there are."""
    if not nodes:
        return Unschedulable("no nodes available to schedule pods")
    held: dict[str, list[Manifest]] = {}
    for other in pods:
        if other["status"].get("phase") not in {"Succeeded", "Failed"}:
            held.setdefault(other["spec"].get("nodeName", ""), []).append(other)
    reasons: Counter[str] = Counter()
    candidates: list[tuple[int, str]] = []
    for node in nodes:
        name = node["metadata"]["name"]
        against = _reasons_against(pod, node, held.get(name, []))
        reasons.update(against)
        if not against:
            candidates.append((len(held.get(name, [])), name))
    if candidates:
        return min(candidates)[1]
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return Unschedulable(f"0/{len(nodes)} nodes are available: {listed}.")


def pod_requests(pod: Manifest) -> Amounts:
    """What a pod takes of a node, itself included (`pods`)."""
    total: Amounts = {"pods": Fraction(1)}
    for container in pod["spec"]["containers"]:
        needs = container.get("resources") or {}
        for name, amount in {**(needs.get("limits") or {}), **(needs.get("requests") or {})}.items():
            total[name] = total.get(name, Fraction(0)) + parse_quantity(amount)
    return total


def _reasons_against(pod: Manifest, node: Manifest, held: Sequence[Manifest]) -> list[str]:
    spec, node_spec = pod["spec"], node.get("spec") or {}
    tolerations = spec.get("tolerations") or []
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node_spec.get("unschedulable") and not _is_tolerated(cordon, tolerations):
        return ["node(s) were unschedulable"]
    for taint in _taints(node):
        if taint.get("effect") in {"NoSchedule", "NoExecute"} and not _is_tolerated(taint, tolerations):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not _is_selected(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return _insufficient(pod, node, held)


def _insufficient(pod: Manifest, node: Manifest, held: Sequence[Manifest]) -> list[str]:
    room = {
        name: parse_quantity(amount) for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items()
    }
    for other in held:
        for name, amount in pod_requests(other).items():
            room[name] = room.get(name, Fraction(0)) - amount
    lacking = [
        name for name, amount in pod_requests(pod).items() if amount > 0 and amount > room.get(name, Fraction(0))
    ]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in lacking]


def _taints(node: Manifest) -> list[Manifest]:
    taints = list((node.get("spec") or {}).get("taints") or [])
    conditions = (node.get("status") or {}).get("conditions") or []
    if not any(known.get("type") == "Ready" and known.get("status") == "True" for known in conditions):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    return taints


def _is_tolerated(taint: Mapping[str, str], tolerations: Iterable[Manifest]) -> bool:
    for toleration in tolerations:
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if toleration.get("operator") == "Exists" or (toleration.get("value") or "") == taint.get("value", ""):
            return True
    return False


def _is_selected(spec: Manifest, node: Manifest) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity is None:
        return True
    return any(_matches_term(term, node) for term in affinity.get("nodeSelectorTerms") or [])


def _matches_term(term: Manifest, node: Manifest) -> bool:
    """All expressions hold; a term without any matches nothing."""
    labels = node["metadata"].get("labels") or {}
    expressions = [(expression, labels) for expression in term.get("matchExpressions") or []]
    names = {"metadata.name": node["metadata"]["name"]}
    expressions += [(expression, names) for expression in term.get("matchFields") or []]
    return bool(expressions) and all(_holds(expression, values) for expression, values in expressions)


def _holds(expression: Manifest, labels: Mapping[str, str]) -> bool:
    actual, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return actual in values
        case "NotIn":
            return actual not in values
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt" as operator if actual is not None and actual.lstrip("-").isdecimal() and len(values) == 1:
            return int(actual) > int(values[0]) if operator == "Gt" else int(actual) < int(values[0])
        case _:
            return False
