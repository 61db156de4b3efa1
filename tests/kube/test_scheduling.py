"""Where a pod may run, as a table, and quantities, which it is counted in."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from mig_spawner.testing.kube.kubelet.scheduling import Unschedulable, place
from mig_spawner.testing.kube.quantities import format_quantity, parse_quantity

MIG = "nvidia.com/mig-1g.10gb"
ONE_DEVICE: dict[str, Any] = {MIG: "1"}
READY = [{"type": "Ready", "status": "True"}]


def node(
    name: str, taints: list[dict[str, str]] | None = None, *, cordoned: bool = False, **room: Any
) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **room}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "size": "3"}},
        "spec": {"taints": taints or [], "unschedulable": cordoned},
        "status": {"allocatable": allocatable, "conditions": READY},
    }


def pod(on: str = "", limits: dict[str, str] | None = None, phase: str = "Pending", **spec: Any) -> dict[str, Any]:
    container = {"name": "notebook", "resources": {"limits": limits or {}}}
    return {"spec": {"nodeName": on, "containers": [container], **spec}, "status": {"phase": phase}}


def affinity(operator: str, values: list[str], key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


def test_the_emptiest_node_is_taken() -> None:
    assert place(pod(), [node("a"), node("b")], [pod(on="a")]) == "b"


def test_a_device_is_given_once() -> None:
    nodes = [node("a", **ONE_DEVICE), node("b")]
    wanting = pod(limits={MIG: "1"})
    assert place(wanting, nodes, []) == "a"
    assert place(wanting, nodes, [pod(on="a", limits={MIG: "1"})]) == Unschedulable(
        f"0/2 nodes are available: 2 Insufficient {MIG}."
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_takes_no_room(phase: str) -> None:
    nodes = [node("a", **ONE_DEVICE)]
    assert place(pod(limits={MIG: "1"}), nodes, [pod(on="a", limits={MIG: "1"}, phase=phase)]) == "a"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "b"}}, "b"),
        ({"affinity": affinity("In", ["b", "c"])}, "b"),
        ({"affinity": affinity("NotIn", ["a"])}, "b"),
        ({"affinity": affinity("Exists", [], "size")}, "a"),
        ({"affinity": affinity("DoesNotExist", [], "other")}, "a"),
        ({"affinity": affinity("Gt", ["2"], "size")}, "a"),
        ({"affinity": affinity("Lt", ["2"], "size")}, None),
        ({"affinity": affinity("In", ["c"])}, None),
        ({"nodeSelector": {"kubernetes.io/hostname": "c"}}, None),
    ],
    ids=str,
)
def test_a_pod_chooses_its_nodes(spec: dict[str, Any], expected: str | None) -> None:
    chosen = place(pod(**spec), [node("a"), node("b")], [])
    assert chosen == (
        expected or Unschedulable("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
    )


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
    ids=str,
)
def test_a_taint_must_be_tolerated(toleration: dict[str, str], is_tolerated: bool) -> None:
    chosen = place(pod(tolerations=[toleration]), [node("a", [TAINT])], [])
    refused = Unschedulable("0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}.")
    assert chosen == ("a" if is_tolerated else refused)


def test_a_soft_taint_is_no_obstacle() -> None:
    assert place(pod(), [node("a", [{**TAINT, "effect": "PreferNoSchedule"}])], []) == "a"


def test_every_node_gives_its_reasons() -> None:
    nodes = [node("a", cpu="1"), node("b", [TAINT]), node("c", cordoned=True), node("d", cpu="1", memory="1Gi")]
    wanting = pod(limits={"cpu": "2", "memory": "2Gi"})
    assert place(wanting, nodes, []) == Unschedulable(
        "0/4 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint {gpu: yes},"
        " 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_a_silent_node_takes_nothing() -> None:
    silent = node("a")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    chosen = place(pod(), [silent], [])
    assert isinstance(chosen, Unschedulable)
    assert "node.kubernetes.io/not-ready" in chosen.message


def test_a_node_holds_so_many_pods() -> None:
    assert place(pod(), [node("a", pods="1")], [pod(on="a")]) == Unschedulable(
        "0/1 nodes are available: 1 Too many pods."
    )


def test_without_nodes_there_is_no_place() -> None:
    assert place(pod(), [], []) == Unschedulable("no nodes available to schedule pods")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", Fraction(1)),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("1e3", Fraction(1000)),
        ("2E3", Fraction(2000)),
        ("1E", Fraction(10**18)),
        ("100k", Fraction(100_000)),
        ("-3", Fraction(-3)),
        (".5", Fraction(1, 2)),
        (7, Fraction(7)),
    ],
)
def test_a_quantity_is_exact(text: object, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "12 bananas", "1KiB", "Gi", "1..2", "0x10", None, True, []], ids=repr)
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["0", "1", "7", "500m", "1Ki", "64Gi", "1500m", "999"])
def test_a_quantity_is_shown_as_it_was_written(text: str) -> None:
    assert format_quantity(parse_quantity(text)) == text
