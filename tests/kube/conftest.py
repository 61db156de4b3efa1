"""Two API servers, the embedded one and a real one, for all tests of how a Kubernetes API behaves, and helpers to ask them.

What uses `cluster` must hold on both, so it may not know which one it talks to; exceptions are in `difference`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import secrets
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import yarl
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.rest import RESTResponse

from mig_spawner.testing.controlplane.run import HUB, ControlPlane
from mig_spawner.testing.kube import EmbeddedKube, Kubelet, KubeUser, NodeSpec
from mig_spawner.testing.kube.strict import WRITES
from tests.controlplane.fixture import control_plane
from tests.kube.difference import DIFFERENCES
from tests.kube.referee import referee

__all__ = ["control_plane", "referee"]

T = TypeVar("T")

DEADLINE_S = 30.0
EMBEDDED = "embedded"
MIG = "nvidia.com/mig-1g.10gb"
HERE = Path(__file__).parent

HUB_RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]


async def wait_for(question: Callable[[], Awaitable[T]], what: str = "the condition", timeout: float = DEADLINE_S) -> T:
    """Asks again and again until the answer is true, and returns it."""
    try:
        async with asyncio.timeout(timeout):
            while not (answer := await question()):
                await asyncio.sleep(0.02)
            return answer
    except TimeoutError:
        pytest.fail(f"{what} did not come about within {timeout:g} s")


@dataclass(frozen=True)
class ApiServer:
    """A running API server: kubeconfigs of its admin, of the hub's account, and of somebody it does not know."""

    admin: Path
    hub: Path
    stranger: Path
    has_scheduler: bool


@dataclass
class Refusal:
    """How the API said no; filled in when it has."""

    code: int = 0
    reason: str = ""
    message: str = ""
    causes: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Cluster:
    """An API server, and a namespace of its own in which the hub's account has the rights of a hub."""

    namespace: str
    kubeconfig: Path
    hub_kubeconfig: Path
    stranger_kubeconfig: Path
    admin: client.ApiClient
    hub: client.ApiClient
    has_scheduler: bool

    @property
    def suffix(self) -> str:
        """What the names of the test's own nodes end with; they are deleted after the test."""
        return self.namespace.removeprefix("test-")

    @property
    def core(self) -> Any:
        """The core API as the admin. `Any`, since the client's types know no plain JSON."""
        return client.CoreV1Api(self.admin)

    @property
    def hub_core(self) -> Any:
        """The core API as the hub's account."""
        return client.CoreV1Api(self.hub)

    def api(self, kind: Callable[[client.ApiClient], Any], *, as_hub: bool = False) -> Any:
        """Another API, as the admin or as the hub's account."""
        return kind(self.hub if as_hub else self.admin)

    def pod(self, name: str = "one", **spec: Any) -> dict[str, Any]:
        """The smallest pod; `spec` is added to its spec, `resources` to its container, `labels` to its labels."""
        metadata = {"name": name, "labels": spec.pop("labels", {})}
        container = {"name": "notebook", "image": "demo/notebook:1", "resources": spec.pop("resources", {})}
        return {"metadata": metadata, "spec": {"containers": [container], **spec}}

    async def create_pod(self, name: str = "one", **spec: Any) -> Any:
        return await self.core.create_namespaced_pod(self.namespace, self.pod(name, **spec))

    async def bind(self, name: str, node: str = "nowhere") -> None:
        """Puts a pod on a node, as a scheduler does."""
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        # Without preloading: the answer is a Status, and the client would read it as a Binding.
        response = await self.core.create_namespaced_pod_binding(name, self.namespace, body, _preload_content=False)
        if not response.ok:
            raise client.ApiException(http_resp=cast("Any", RESTResponse(response, await response.read())))

    async def raw(self, answer: Awaitable[Any]) -> Any:
        """The JSON behind an answer that was asked for with `_preload_content=False`."""
        response = await answer
        return json.loads(await response.read())

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[int, Any]:
        """Status and answer (its text if it is not JSON) of a request by the admin, strictly validated if it writes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        config = self.admin.configuration
        headers = {"Accept": accept, "Authorization": await config.get_api_key_with_prefix("BearerToken")}
        headers |= {"Content-Type": content_type} if data is not None else {}
        if method in WRITES:
            path += f"{'&' if '?' in path else '?'}fieldValidation=Strict"
        url = yarl.URL(f"{config.host}{path}", encoded=True)
        async with self.admin.rest_client.pool_manager.request(method, url, data=data, headers=headers) as answer:
            text = (await answer.text()).strip()
            return answer.status, json.loads(text) if answer.content_type == "application/json" and text else text

    @contextlib.contextmanager
    def refused(self, code: int) -> Iterator[Refusal]:
        """The block must be refused with this HTTP status."""
        refusal = Refusal()
        with pytest.raises(client.ApiException) as caught:
            yield refusal
        body = json.loads(caught.value.body or "")
        refusal.code, refusal.reason, refusal.message = caught.value.status, body["reason"], body["message"]
        refusal.causes = (body.get("details") or {}).get("causes") or []
        assert refusal.code == code, refusal
        assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", code)

    async def wait_for(self, question: Callable[[], Awaitable[T]], what: str = "the condition") -> T:
        return await wait_for(question, what)

    async def wait_until_allowed(self, question: Callable[[], Awaitable[T]]) -> T:
        """Asks again as long as the answer is 403: servers may learn of a new right, or of a new class, a moment late."""

        async def allowed() -> tuple[T] | None:
            try:
                return (await question(),)
            except client.ApiException as error:
                if error.status == 403:
                    return None
                raise

        found = await self.wait_for(allowed, "the permission")
        assert found is not None
        return found[0]


class _Thread:
    """An embedded server in a thread, so that it outlives the event loops of single tests."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="embedded-kube")
        self.kube: EmbeddedKube | None = None

    def __enter__(self) -> EmbeddedKube:
        self._thread.start()
        assert self._started.wait(DEADLINE_S)
        assert self.kube is not None
        return self.kube

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        users = {
            "admintoken": KubeUser("admin", ("system:masters",)),
            "hubtoken": HUB,
        }
        async with EmbeddedKube(tokens=users) as kube:
            self.kube = kube
            self._started.set()
            await self._stop.wait()


_shared_context = functools.cache(ssl.create_default_context)


@pytest.fixture(autouse=True)
def one_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Kubernetes client reads the machine's certificates anew, which takes longer than most tests here."""
    monkeypatch.setattr(ssl, "create_default_context", _shared_context)


@pytest.fixture(scope="session", params=[EMBEDDED, pytest.param("real", marks=pytest.mark.controlplane)])
def api_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("kubeconfig")
    if request.param != EMBEDDED:
        # Not an argument: the embedded server's tests need no control plane.
        plane: ControlPlane = request.getfixturevalue("control_plane")
        yield ApiServer(
            admin=plane.kubeconfig(folder / "admin.yaml"),
            hub=plane.kubeconfig(folder / "hub.yaml", HUB.name),
            stranger=plane.write_kubeconfig(folder / "stranger.yaml", token="nobody"),
            has_scheduler=True,
        )
        return
    with _Thread() as kube:
        yield ApiServer(
            admin=kube.write_kubeconfig(folder / "admin.yaml", token="admintoken"),
            hub=kube.write_kubeconfig(folder / "hub.yaml", token="hubtoken"),
            stranger=kube.write_kubeconfig(folder / "stranger.yaml", token="nobody"),
            has_scheduler=False,
        )


@pytest.fixture
async def cluster(api_server: ApiServer) -> AsyncIterator[Cluster]:
    admin = await config.new_client_from_config(str(api_server.admin))
    hub = await config.new_client_from_config(str(api_server.hub))
    namespace = f"test-{secrets.token_hex(4)}"
    async with admin, hub:
        made = Cluster(
            namespace, api_server.admin, api_server.hub, api_server.stranger, admin, hub, api_server.has_scheduler
        )
        await made.core.create_namespace({"metadata": {"name": namespace}})
        await _grant_hub_rights(made)
        yield made
        for pod in (await made.core.list_namespaced_pod(namespace)).items:
            with contextlib.suppress(client.ApiException):
                patch = {"metadata": {"finalizers": None}}
                await made.core.patch_namespaced_pod(pod.metadata.name, namespace, patch)
                await made.core.delete_namespaced_pod(pod.metadata.name, namespace, grace_period_seconds=0)
        await made.core.delete_namespace(namespace)
        for node in (await made.core.list_node()).items:
            if node.metadata.name.endswith(made.suffix):
                await made.core.delete_node(node.metadata.name)


async def _grant_hub_rights(cluster: Cluster) -> None:
    rbac, namespace = cluster.api(client.RbacAuthorizationV1Api), cluster.namespace
    await rbac.create_namespaced_role(namespace, {"metadata": {"name": "hub"}, "rules": HUB_RULES})
    binding = {
        "metadata": {"name": "hub"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hub"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": HUB.name}],
    }
    await rbac.create_namespaced_role_binding(namespace, binding)

    async def may_list() -> bool:
        asked = {"spec": {"resourceAttributes": {"namespace": namespace, "verb": "list", "resource": "pods"}}}
        answer = await cluster.api(client.AuthorizationV1Api, as_hub=True).create_self_subject_access_review(asked)
        return bool(answer.status.allowed)

    async def has_account() -> bool:
        accounts = await cluster.core.list_namespaced_service_account(namespace)
        return any(account.metadata.name == "default" for account in accounts.items)

    await wait_for(may_list, "the hub's rights")
    await wait_for(has_account, "the default service account")


@pytest.fixture
async def kubelet(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Kubelet]:
    """Two nodes that run pods for real; `gpu-a` has one MIG device, `gpu-b` two."""
    nodes = [
        NodeSpec(f"gpu-a-{cluster.suffix}", labels={"pool": "a"}, capacity={MIG: "1", "cpu": "2"}),
        NodeSpec(f"gpu-b-{cluster.suffix}", labels={"pool": "b"}, capacity={MIG: "2", "cpu": "4"}),
    ]
    async with Kubelet(
        cluster.kubeconfig, nodes, state_dir=tmp_path / "kubelet", schedule=not cluster.has_scheduler, back_off=0.2
    ) as kubelet:
        yield kubelet


_ANSWERS_DIFFER = (AssertionError, client.ApiException, pytest.fail.Exception)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the table of differences names must fail on the embedded server."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("api_server") != EMBEDDED or HERE not in item.path.parents:
            continue
        for difference in DIFFERENCES:
            if difference.test == f"{item.path.name}::{getattr(item, 'originalname', item.name)}":
                item.add_marker(pytest.mark.xfail(reason=difference.reason, raises=_ANSWERS_DIFFER, strict=True))
