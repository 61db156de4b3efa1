"""How the parts are started: their command lines, environments and settings. Secrets go by environment or private file only.

All parts and all notebooks run as the same user of this machine, so people in the demo are not kept apart as pods on a cluster are.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mig_spawner.demo.cluster import NAMESPACE
from mig_spawner.demo.fleet import Node
from mig_spawner.demo.option import ADMIN, Options
from mig_spawner.demo.proxy import Node as NodeJS
from mig_spawner.demo.workspace import HOST, Ports, Secrets, Workspace
from mig_spawner.testing.process import Part

SERVICE: Final = "/services/mig"
_MIG_SPAWNER: Final = (sys.executable, "-m", "mig_spawner.cli")


@dataclass(frozen=True, slots=True)
class Wiring:
    """Who finds whom, and with which token. Making a part starts nothing."""

    options: Options
    ports: Ports
    secrets: Secrets

    @property
    def url(self) -> str:
        """Where the browser goes."""
        return f"http://{HOST}:{self.ports.public}"

    @property
    def hub_url(self) -> str:
        """The hub itself, without the proxy before it."""
        return f"http://{HOST}:{self.ports.hub}"

    @property
    def proxy_api_url(self) -> str:
        return f"http://{HOST}:{self.ports.proxy_api}"

    @property
    def allocator_url(self) -> str:
        """The allocator itself, without the proxy before it."""
        return f"http://{HOST}:{self.ports.allocator}{SERVICE}"

    def proxy(self, workspace: Workspace, node: NodeJS, script: Path) -> Part:
        argv = [
            *(*node.node, str(script)),
            *("--ip", HOST, "--port", str(self.ports.public)),
            *("--api-ip", HOST, "--api-port", str(self.ports.proxy_api)),
            *("--default-target", self.hub_url, "--error-target", f"{self.hub_url}/hub/error"),
        ]
        env = {
            "CONFIGPROXY_AUTH_TOKEN": self.secrets.proxy,
            "NODE_ENV": "production",
            "NODE_DISABLE_COMPILE_CACHE": "1",
        }
        return _part(workspace, "the proxy", argv, env)

    def allocator(self, workspace: Workspace) -> Part:
        tokens = workspace.write("agent-tokens.json", json.dumps(dict(self.secrets.agents)))
        argv = [
            *(*_MIG_SPAWNER, "allocator"),
            f"--AllocatorApp.bind_url={self.allocator_url}/",
            f"--AllocatorApp.database_url=sqlite:///{workspace.root}/ledger.sqlite",
            f"--AllocatorApp.kubeconfig={workspace.kubeconfig('mig-allocator')}",
            f"--AllocatorApp.namespace={NAMESPACE}",
            f"--AllocatorApp.agent_tokens_file={tokens}",
        ]
        # Mostly what a hub gives a service that it starts itself; an external one has to be told.
        env = {
            "JUPYTERHUB_API_TOKEN": self.secrets.allocator,
            "JUPYTERHUB_API_URL": f"{self.hub_url}/hub/api",
            "JUPYTERHUB_BASE_URL": "/",
            "JUPYTERHUB_CLIENT_ID": "service-mig",
            "JUPYTERHUB_SERVICE_NAME": "mig",
            "JUPYTERHUB_SERVICE_PREFIX": f"{SERVICE}/",
        }
        return _part(workspace, "the allocator", argv, env)

    def agent(self, workspace: Workspace, node: Node) -> Part:
        argv = [
            *(*_MIG_SPAWNER, "agent"),
            f"--node={node.name}",
            f"--allocator-url={self.allocator_url}",
            "--driver=fake",
            f"--gpu={node.gpu}",
            f"--state-file={workspace.gpu_file(node.name)}",
            "--report-interval=5",
        ]
        return _part(workspace, f"the agent of {node.name}", argv, {"MIG_AGENT_TOKEN": self.secrets.agents[node.name]})

    def hub(self, workspace: Workspace) -> Part:
        settings = {
            "people": self.options.people,
            "admin": ADMIN,
            "public_url": self.url,
            "hub_url": self.hub_url,
            "proxy_api_url": self.proxy_api_url,
            "allocator_url": self.allocator_url,
            "folder": str(workspace.hub),
            "menu": self.options.menu,
            "notebook_config": str(Path(__file__).with_name("notebook")),
        }
        config = Path(__file__).with_name("jupyterhub_config.py")
        env = {
            "MIG_DEMO_SETTINGS": str(workspace.write("hub.json", json.dumps(settings, indent=1))),
            "MIG_DEMO_PASSWORD": self.options.password,
            "MIG_ALLOCATOR_TOKEN": self.secrets.allocator,
            "CONFIGPROXY_AUTH_TOKEN": self.secrets.proxy,
            "KUBECONFIG": str(workspace.kubeconfig("hub")),
        }
        return _part(workspace, "the hub", [sys.executable, "-m", "jupyterhub", "-f", str(config)], env)


def _part(workspace: Workspace, name: str, argv: list[str], env: dict[str, str]) -> Part:
    log = workspace.logs / f"{name.removeprefix('the ').replace(' ', '-')}.log"
    return Part(name, argv, workspace.env(env), log, workspace.root)
