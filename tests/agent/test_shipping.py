"""What is shipped to run agents: each file is loaded, and everything it names exists."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from mig_spawner.agent.app import AgentApp

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "hub_config"


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CONFIG / "kubernetes" / file).read_text()))


def daemon_set(file: str) -> dict[str, Any]:
    return next(d for d in documents(file) if d["kind"] == "DaemonSet")


def started(words: list[str]) -> AgentApp:
    """The agent with these arguments; an unknown one would end it."""
    assert words[:2] == ["mig-spawner", "agent"]
    app = AgentApp()
    app.initialize(words[2:])
    return app


@pytest.mark.parametrize(
    ("file", "mode", "privileged"), [("agent.yaml", "dynamic", True), ("agent-reader.yaml", "static", False)]
)
def test_a_daemon_set_starts_the_agent_with_what_it_needs(file: str, mode: str, privileged: bool) -> None:
    spec = daemon_set(file)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    app = started(container["args"])
    assert (app.mode, app.driver, app.allocator_url) == (mode, "nvml", "http://mig-allocator:8080/services/mig")
    assert container["securityContext"]["privileged"] is privileged
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert spec["hostPID"], "else no process of a notebook is seen"
    (port,) = container["ports"]
    assert app.metrics_bind == f":{port['containerPort']}"
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    assert app.token_file in mounted
    assert any(e["name"] == "MIG_NODE_NAME" for e in container["env"])


def test_the_reader_has_no_right_and_no_path_to_the_driver_but_the_runtime() -> None:
    spec = daemon_set("agent-reader.yaml")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})
    assert not [v for v in spec["volumes"] if "hostPath" in v]
    assert spec["runtimeClassName"] == "nvidia"
    given = {e["name"]: e.get("value") for e in container["env"]}
    assert given["NVIDIA_MIG_MONITOR_DEVICES"] == "all", "else it may not read the memory of a GPU with MIG mode on"
    assert spec["nodeSelector"]["nvidia.com/gpu.deploy.client"] == "true", "mig-manager can pause it"


def test_the_two_never_meet_under_one_selector() -> None:
    first, second = (daemon_set(f)["spec"]["selector"]["matchLabels"] for f in ("agent.yaml", "agent-reader.yaml"))
    assert first != second


@pytest.mark.parametrize("file", ["agent.yaml", "agent-reader.yaml"])
def test_the_allocator_lets_the_agents_come(file: str) -> None:
    policy = next(d for d in documents("allocator.yaml") if d["kind"] == "NetworkPolicy")
    labels = daemon_set(file)["spec"]["template"]["metadata"]["labels"]
    selectors = [entry["podSelector"] for rule in policy["spec"]["ingress"] for entry in rule["from"]]
    assert any(selects(selector, labels) for selector in selectors)
    assert not any(selects(selector, {"app": "jupyterhub", "component": "singleuser-server"}) for selector in selectors)


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether Kubernetes would find a pod with these labels."""
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    expressions = selector.get("matchExpressions", [])
    assert all(e["operator"] == "In" for e in expressions)
    return wanted and all(labels.get(e["key"]) in e["values"] for e in expressions)


def test_the_unit_starts_the_agent_and_names_settings_that_exist() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(CONFIG / "systemd" / "mig-agent.service")
    service = unit["Service"]
    settings = dict(
        line.split("=", 1)
        for line in (CONFIG / "systemd" / "mig-agent.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    command = re.sub(r"\$\{(\w+)\}", lambda m: settings.pop(m[1]), service["ExecStart"])
    assert settings == {}, "each setting is used"
    program, *rest = shlex.split(command)
    app = started([Path(program).name, *rest])
    assert (app.mode, app.metrics_bind) == ("dynamic", "127.0.0.1:9454")
    assert "CAP_SYS_ADMIN" in service["CapabilityBoundingSet"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_images_hold_what_the_package_offers() -> None:
    text = (CONFIG / "Containerfile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\.whl\)\[(\w+)\]", text)) == {"agent", "allocator"} <= set(extras)
    stages = re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE)
    assert stages == ["wheel", "agent", "allocator"]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert all((ROOT / name).exists() for line in copied for name in line.split())
    assert re.search(r'^CMD \["mig-spawner", "agent"\]$', text, re.MULTILINE)
