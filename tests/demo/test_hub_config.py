"""The examples in `hub_config/`: each is loaded, and everything it names exists."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jupyterhub.app import JupyterHub
from traitlets.config import Config, Configurable
from traitlets.config.loader import PyFileConfigLoader

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.demo.cluster import ROLES
from mig_spawner.spawner import MIGSpawner
from mig_spawner.testing.kube import EmbeddedKube
from mig_spawner.wire.menu import Menu

EXAMPLES = Path(__file__).resolve().parents[2] / "hub_config"
HUBS = ("jupyterhub_config.py", "jupyterhub_config_managed.py")
TOKEN = "a-token-of-the-test"
CLASSES: dict[str, type[Configurable]] = {
    "AllocatorApp": AllocatorApp,
    "JupyterHub": JupyterHub,
    "KubeSpawner": MIGSpawner,
    "MIGSpawner": MIGSpawner,
}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIG_ALLOCATOR_TOKEN", TOKEN)


def load(name: str) -> Config:
    return PyFileConfigLoader(str(EXAMPLES / name)).load_config()


def unknown_traits(config: Config) -> list[str]:
    """What a configuration sets and no class has."""
    return [
        f"{section}.{trait}"
        for section, traits in config.items()
        for trait in traits
        if trait not in CLASSES.get(section, CLASSES["JupyterHub"]).class_trait_names(config=True)
        and section in CLASSES
    ]


@pytest.mark.parametrize("name", [*HUBS, "allocator_config.py"])
def test_every_trait_that_an_example_sets_exists(name: str) -> None:
    assert unknown_traits(load(name)) == []


@pytest.mark.parametrize("name", HUBS)
def test_a_hub_takes_the_example(name: str) -> None:
    hub = JupyterHub(config=load(name))
    assert hub.spawner_class is MIGSpawner
    service = next(s for s in hub.services if s["name"] == "mig")
    assert service["api_token"] == TOKEN
    assert service["oauth_no_confirm"] is True
    assert "custom:mig:reserve" in hub.custom_scopes
    assert ("command" in service) == ("managed" in name)


# In a process of its own: KubeSpawner reads its cluster's address once, when it is first imported.
MAKE_SPAWNER = """
import asyncio, sys
from traitlets.config.loader import PyFileConfigLoader
from mig_spawner.spawner import MIGSpawner

async def main():
    spawner = MIGSpawner(config=PyFileConfigLoader(sys.argv[1]).load_config(), _mock=True)
    print(*[entry.id for entry in spawner.mig_menu], spawner.allocator_token, spawner.start_timeout)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", HUBS)
async def test_a_spawner_takes_the_example_and_its_menu(name: str, tmp_path: Path) -> None:
    async with EmbeddedKube() as kube:
        config = kube.write_kubeconfig(tmp_path / "kubeconfig.yaml")
    made = subprocess.run(
        [sys.executable, "-c", MAKE_SPAWNER, str(EXAMPLES / name)],
        env={**os.environ, "KUBECONFIG": str(config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["cpu", "small", "medium", "about-12-gb", "whole", TOKEN, "300"]


def test_the_allocator_takes_the_example() -> None:
    app = AllocatorApp(config=load("allocator_config.py"))
    assert app.database_url.startswith("sqlite:////")


def test_the_menu_is_one() -> None:
    menu = Menu.parse(yaml.safe_load((EXAMPLES / "menu.yaml").read_text()))
    assert menu.default is not None
    assert menu.default.none


# --- Zero to JupyterHub -----------------------------------------------------------------------------------------------


@pytest.fixture
def values() -> Any:
    return yaml.safe_load((EXAMPLES / "z2jh-values.yaml").read_text())


def test_the_values_set_traits_that_exist(values: Any) -> None:
    config = values["hub"]["config"]
    assert unknown_traits(Config(config)) == []
    assert [e.id for e in Menu.parse(config["MIGSpawner"]["menu"])] == ["cpu", "small", "medium", "whole"]
    JupyterHub(config=Config({"JupyterHub": config["JupyterHub"]}))


def test_the_values_name_the_spawner_by_its_entry_point(values: Any) -> None:
    hub = JupyterHub(config=Config({"JupyterHub": values["hub"]["config"]["JupyterHub"]}))
    assert hub.spawner_class is MIGSpawner


def test_the_values_define_every_custom_scope_that_they_give_away(values: Any) -> None:
    defined = set(values["hub"]["config"]["JupyterHub"]["custom_scopes"])
    given = {s.partition("!")[0] for role in values["hub"]["loadRoles"].values() for s in role["scopes"]}
    given |= set(values["hub"]["services"]["mig"]["oauth_client_allowed_scopes"])
    assert {s for s in given if s.startswith("custom:")} <= defined


def test_the_python_in_the_values_compiles(values: Any) -> None:
    for name, text in values["hub"]["extraConfig"].items():
        compile(text, name, "exec")


# --- Kubernetes -------------------------------------------------------------------------------------------------------


MANIFESTS = [
    (path.stem, manifest)
    for path in sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
]


def manifest(kind: str, name: str) -> Any:
    [found] = [m for _, m in MANIFESTS if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("version", ["1.28", "1.33"])
@pytest.mark.parametrize("document", [pytest.param(m, id=f"{stem}-{m['kind']}") for stem, m in MANIFESTS])
def test_a_manifest_is_valid_for_kubernetes(document: Any, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_allocator_may_do_no_more_than_watch_pods() -> None:
    rules = manifest("Role", "mig-allocator")["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert [(tuple(r["resources"]), tuple(r["verbs"])) for r in rules] == list(ROLES["mig-allocator"])


def test_the_allocator_runs_without_rights_on_the_machine() -> None:
    pod = manifest("Deployment", "mig-allocator")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    deployment = manifest("Deployment", "mig-allocator")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")


def test_the_configuration_in_the_config_map_sets_traits_that_exist(tmp_path: Path) -> None:
    path = tmp_path / "allocator_config.py"
    path.write_text(manifest("ConfigMap", "mig-allocator")["data"]["allocator_config.py"])
    config = PyFileConfigLoader(str(path)).load_config()
    assert unknown_traits(config) == []
    assert config == load("allocator_config.py")


def test_the_agent_sees_the_driver_and_gets_no_gpu_and_only_its_own_token() -> None:
    pod = manifest("DaemonSet", "mig-agent")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "resources" not in container or "nvidia.com/gpu" not in str(container["resources"])
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert mounts["driver-root"]["readOnly"] is True
    assert mounts["tokens"]["subPathExpr"] == "$(MIG_NODE_NAME)"
    assert pod["automountServiceAccountToken"] is False


def test_agent_and_allocator_meet_at_the_same_address_and_secret() -> None:
    service = manifest("Service", "mig-allocator")
    agent = manifest("DaemonSet", "mig-agent")["spec"]["template"]["spec"]
    deployment = manifest("Deployment", "mig-allocator")["spec"]["template"]
    url = f"--allocator-url=http://mig-allocator:{service['spec']['ports'][0]['port']}/services/mig"
    assert url in agent["containers"][0]["args"]
    assert service["spec"]["selector"].items() <= deployment["metadata"]["labels"].items()
    secrets = [v["secret"]["secretName"] for p in (agent, deployment["spec"]) for v in p["volumes"] if "secret" in v]
    assert secrets == ["mig-agents", "mig-agents"]


def test_a_new_image_of_the_allocator_brings_its_ledger_up_to_date(tmp_path: Path) -> None:
    manifests = [*yaml.safe_load_all((EXAMPLES / "kubernetes" / "allocator.yaml").read_text())]
    [deployment] = [one for one in manifests if one["kind"] == "Deployment"]
    [configuration] = [one for one in manifests if one["kind"] == "ConfigMap"]
    pod = deployment["spec"]["template"]["spec"]
    [upgrade], [allocator] = pod["initContainers"], pod["containers"]
    assert {key: upgrade[key] for key in ("image", "volumeMounts", "securityContext")} == {
        key: allocator[key] for key in ("image", "volumeMounts", "securityContext")
    }
    # As it is run there, but for where things are.
    [(file, text)] = configuration["data"].items()
    (tmp_path / file).write_text(text.replace("/var/lib/mig-allocator", str(tmp_path)))
    program, *arguments = [argument.replace("/etc/mig-allocator", str(tmp_path)) for argument in upgrade["args"]]
    assert program == "mig-spawner"
    for said in ("The ledger was made", "The ledger has the schema"):
        done = subprocess.run(
            [sys.executable, "-m", "mig_spawner.cli", *arguments], capture_output=True, text=True, timeout=60
        )
        assert said in done.stdout, done.stderr
    assert (tmp_path / "ledger.sqlite").exists()
