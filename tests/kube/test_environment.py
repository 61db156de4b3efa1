"""The environment of a pod's process, as a table."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from mig_spawner.testing.kube.kubelet.environment import (
    ConfigProblem,
    Sources,
    build_environment,
    expand,
    named_objects,
    with_host,
)

POD: dict[str, Any] = {
    "metadata": {
        "name": "one",
        "namespace": "ns",
        "uid": "u-1",
        "labels": {"app": "hub"},
        "annotations": {"mig/lease": "l-1"},
    },
    "spec": {"nodeName": "gpu-a", "serviceAccountName": "default"},
    "status": {"podIP": "127.64.0.2", "hostIP": "127.0.0.1"},
}
SOURCES = Sources(
    POD,
    {"memory": "8Gi", "cpu": "4"},
    {"keys": {"data": {"token": base64.b64encode(b"hidden").decode()}}, "absent": None},
    {"settings": {"data": {"color": "blue"}}, "absent": None},
)


def build(env: list[dict[str, Any]], env_from: list[dict[str, Any]] | None = None, **resources: Any) -> dict[str, str]:
    container = {"name": "notebook", "env": env, "envFrom": env_from or [], "resources": resources}
    return build_environment(container, SOURCES, {"HOME": "/home/me"})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$$", "$"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A ${A}", "$A ${A}"),
        ("$", "$"),
    ],
)
def test_references_are_expanded(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expanded


def test_a_variable_sees_those_before_it() -> None:
    built = build([{"name": "A", "value": "$(B)"}, {"name": "B", "value": "2"}, {"name": "C", "value": "$(B)$(HOME)"}])
    assert (built["A"], built["C"]) == ("$(B)", "2/home/me")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "one"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "hub"),
        ("metadata.annotations['mig/lease']", "l-1"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "gpu-a"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.64.0.2"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_a_field_of_the_pod_can_be_given(path: str, value: str) -> None:
    assert build([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}])["A"] == value


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.memory"}, str(64 * 2**20)),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "64"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "500"),
        ({"resource": "limits.cpu"}, "4"),
    ],
    ids=["bytes", "mebibytes", "rounded-up", "millicores", "room-of-the-node"],
)
def test_an_amount_is_given_in_its_base_unit(reference: dict[str, str], value: str) -> None:
    built = build(
        [{"name": "A", "valueFrom": {"resourceFieldRef": reference}}],
        limits={"memory": "64Mi"},
        requests={"cpu": "500m"},
    )
    assert built["A"] == value


def test_secrets_and_config_maps_are_read() -> None:
    built = build(
        [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
        ],
        [{"secretRef": {"name": "keys"}}, {"prefix": "MY_", "configMapRef": {"name": "settings"}}],
    )
    assert built == {"HOME": "/home/me", "A": "hidden", "B": "blue", "token": "hidden", "MY_color": "blue"}


@pytest.mark.parametrize("source", ["secretKeyRef", "configMapKeyRef"])
@pytest.mark.parametrize("name", ["absent", "keys", "settings"])
def test_what_is_missing_stops_the_start_unless_it_is_optional(source: str, name: str) -> None:
    reference = {"name": name, "key": "none"}
    with pytest.raises(ConfigProblem, match=r"not found|couldn't find key none"):
        build([{"name": "A", "valueFrom": {source: reference}}])
    assert "A" not in build([{"name": "A", "valueFrom": {source: {**reference, "optional": True}}}])


@pytest.mark.parametrize("source", ["secretRef", "configMapRef"])
def test_a_missing_source_stops_the_start_unless_it_is_optional(source: str) -> None:
    with pytest.raises(ConfigProblem, match='"absent" not found'):
        build([], [{source: {"name": "absent"}}])
    assert build([], [{source: {"name": "absent", "optional": True}}]) == {"HOME": "/home/me"}


def test_an_unknown_field_is_a_problem() -> None:
    with pytest.raises(ConfigProblem, match=r"spec\.unheard"):
        build([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.unheard"}}}])


def test_the_named_objects_are_known_before_they_are_read() -> None:
    container = {
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}, {"name": "B", "value": "1"}],
        "envFrom": [{"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "c1"}}],
    }
    assert named_objects(container) == ({"s1", "s2"}, {"c1"})


@pytest.mark.parametrize(
    ("url", "moved"),
    [
        ("http://0.0.0.0:8888/user/a/", "http://127.64.0.2:8888/user/a/"),
        ("https://0.0.0.0/x?y=1", "https://127.64.0.2/x?y=1"),
    ],
)
def test_a_url_is_moved_to_another_host(url: str, moved: str) -> None:
    assert with_host(url, "127.64.0.2") == moved


def test_secrets_are_not_shown() -> None:
    assert "token" not in repr(SOURCES)
