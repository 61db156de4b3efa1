"""The demo's Kubernetes: an API server, our kubelet, one namespace, and the rights a real cluster would give.

The API server is the embedded one in this process, or a real one with its scheduler and controllers as child processes.

Hub and allocator are service accounts with the roles of their charts, and no more. Nobody else on this machine gets in:
whoever may create a pod here may run a program as the demo's user.
"""

from __future__ import annotations

import os
import secrets
import site
import ssl
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
from mig_spawner.testing.controlplane import ADMIN, ControlPlane
from mig_spawner.testing.gpu.smi import BOARD_FILES
from mig_spawner.testing.kube import EmbeddedKube, Kubelet, KubeUser, NodeSpec
from mig_spawner.testing.process import until

NAMESPACE: Final = "default"
RIGHTS_S: Final = 20.0
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete")
ROLES: Final[Mapping[str, Sequence[tuple[Sequence[str], Sequence[str]]]]] = {
    # The hub's role of Zero to JupyterHub.
    "hub": (
        (("pods", "persistentvolumeclaims", "secrets", "services"), (*_READ, *_WRITE)),
        (("events",), _READ),
    ),
    # hub_config/kubernetes/allocator.yaml
    "mig-allocator": ((("pods",), ("list", "watch")),),
}


class Cluster:
    """The cluster: `async with Cluster(workspace, nodes) as cluster: ...`

    Args:
        programs: the folder of a real control plane's programs; None for the embedded one.

    Attributes:
        kubelet: runs the pods; it can kill one.
    """

    kubelet: Kubelet

    def __init__(self, workspace: Workspace, nodes: Sequence[Node], *, programs: Path | None = None) -> None:
        self._workspace = workspace
        self._nodes = nodes
        self._is_real = programs is not None
        users = {"admin": ADMIN, **{name: _account(name) for name in ROLES}}
        self._kube: EmbeddedKube | ControlPlane
        if programs is None:
            self._tokens = {name: secrets.token_hex(16) for name in users}
            self._kube = EmbeddedKube(
                tokens={self._tokens[n]: user for n, user in users.items()},
                anonymous=False,
                audit_log=workspace.logs / "kubernetes-audit.log",
            )
        else:
            environ = {MARK: str(workspace.root)}
            self._kube = plane = ControlPlane(
                programs, users=users.values(), folder=workspace.root / "kubernetes", environ=environ
            )
            self._tokens = {name: plane.token(user.name) for name, user in users.items()}
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._kube)
            ca = self._kube.ca_file if isinstance(self._kube, ControlPlane) else None
            context = ssl.create_default_context(cafile=ca)
            self._http = await stack.enter_async_context(
                httpx.AsyncClient(base_url=self._kube.url, verify=context, trust_env=False)
            )
            if self._is_real:  # the embedded one has it
                body = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
                await self._call("POST", "/apis/node.k8s.io/v1/runtimeclasses", body)
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
                    schedule=not self._is_real,
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

    @property
    def version(self) -> str:
        """Of a real Kubernetes, "1.36"; empty for the embedded one."""
        return ".".join(map(str, self._kube.version)) if isinstance(self._kube, ControlPlane) else ""

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
        try:
            await until(lambda: self._may_watch_pods(name), timeout_s=RIGHTS_S)
        except TimeoutError as error:
            raise DemoFailed(f"The demo's Kubernetes did not give {name} its rights within {RIGHTS_S:g} s.") from error

    async def _may_watch_pods(self, name: str) -> bool:
        """A real API server learns of new roles a moment late."""
        asked = {"namespace": NAMESPACE, "verb": "watch", "resource": "pods"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = await self._call("POST", path, {"spec": {"resourceAttributes": asked}}, user=name)
        return bool(review["status"]["allowed"])

    async def _call(self, method: str, path: str, body: object = None, *, user: str = "admin") -> Any:
        headers = {"Authorization": f"Bearer {self._tokens[user]}"}
        response = await self._http.request(method, path, json=body, headers=headers)
        if response.status_code >= 400:
            raise DemoFailed(f"The demo's Kubernetes answered {response.status_code} to {method} {path}.")
        return response.json()


def _account(name: str) -> KubeUser:
    """A service account, in the groups that Kubernetes puts it into."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
    return KubeUser(f"system:serviceaccount:{NAMESPACE}:{name}", groups)


def _python_env() -> dict[str, str]:
    """What lets a pod, which has another home folder, import what we can."""
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    if site.ENABLE_USER_SITE and Path(__file__).is_relative_to(site.getusersitepackages()):
        env["PYTHONUSERBASE"] = site.getuserbase()
    return env
