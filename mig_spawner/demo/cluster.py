"""The demo's Kubernetes: API server and kubelet in this process, one namespace, and the rights a real cluster would give.

Hub and allocator are service accounts with the roles of their charts, and no more. Nobody else on this machine gets in:
whoever may create a pod here may run a program as the demo's user.
"""

from __future__ import annotations

import os
import secrets
import site
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from mig_spawner.demo.fleet import Node
from mig_spawner.demo.guard import MARK
from mig_spawner.demo.workspace import Workspace
from mig_spawner.errors import DemoFailed
from mig_spawner.testing.gpu.smi import BOARD_FILES
from mig_spawner.testing.kube import EmbeddedKube, Kubelet, KubeUser, NodeSpec

NAMESPACE: Final = "default"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete")
ROLES: Final[Mapping[str, Sequence[tuple[Sequence[str], Sequence[str]]]]] = {
    # The hub's role of Zero to JupyterHub.
    "hub": (
        (("pods", "persistentvolumeclaims", "secrets", "services"), (*_READ, *_WRITE)),
        (("events",), _READ),
    ),
    # hub_config/kubernetes/allocator.yaml
    "mig-allocator": ((("pods",), _READ),),
}


class Cluster:
    """The embedded cluster: `async with Cluster(workspace, nodes) as cluster: ...`

    Attributes:
        kubelet: runs the pods; it can kill one.
    """

    kubelet: Kubelet

    def __init__(self, workspace: Workspace, nodes: Sequence[Node]) -> None:
        self._workspace = workspace
        self._nodes = nodes
        self._tokens = {name: secrets.token_hex(16) for name in ("admin", *ROLES)}
        users = {name: KubeUser(f"system:serviceaccount:{NAMESPACE}:{name}") for name in ROLES}
        users["admin"] = KubeUser("admin", ("system:masters",))
        self._kube = EmbeddedKube(
            tokens={self._tokens[name]: user for name, user in users.items()},
            anonymous=False,
        )
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._kube)
            self._http = await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=self._kube.url,
                    headers={"Authorization": f"Bearer {self._tokens['admin']}"},
                    trust_env=False,
                )
            )
            for name in ROLES:
                await self._give_rights(name)
            for name in self._tokens:
                self._kube.write_kubeconfig(
                    self._workspace.kubeconfig(name), token=self._tokens[name], namespace=NAMESPACE
                )
            self.kubelet = await stack.enter_async_context(
                Kubelet(
                    self._workspace.kubeconfig("admin"),
                    [NodeSpec(node.name) for node in self._nodes],
                    state_dir=self._workspace.pods,
                    path_prefix=[self._workspace.bin],
                    extra_env=self._pod_env,
                )
            )
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def pods(self) -> dict[str, str]:
        """All pods that there are now: name to uid."""
        answer = await self._call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in answer["items"]}

    def _pod_env(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """What every container gets: the files that its `nvidia-smi` reads, and the guard's mark."""
        del pod
        files = [str(self._workspace.gpu_file(node.name)) for node in self._nodes]
        return {BOARD_FILES: os.pathsep.join(files), MARK: str(self._workspace.root), **_python_env()}

    async def _give_rights(self, name: str) -> None:
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        rules = [{"apiGroups": [""], "resources": list(r), "verbs": list(v)} for r, v in ROLES[name]]
        await self._call("POST", f"{path}/roles", {"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }
        await self._call("POST", f"{path}/rolebindings", binding)

    async def _call(self, method: str, path: str, body: object = None) -> Any:
        response = await self._http.request(method, path, json=body)
        if response.status_code >= 400:
            raise DemoFailed(f"The embedded Kubernetes answered {response.status_code} to {method} {path}.")
        return response.json()


def _python_env() -> dict[str, str]:
    """What lets a pod, which has another home folder, import what we can."""
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    if site.ENABLE_USER_SITE and Path(__file__).is_relative_to(site.getusersitepackages()):
        env["PYTHONUSERBASE"] = site.getuserbase()
    return env
