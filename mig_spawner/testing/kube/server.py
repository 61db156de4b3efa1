"""The embedded Kubernetes API as a server: start, address, kubeconfig, stop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from aiohttp import web

from mig_spawner.testing.kube import resources
from mig_spawner.testing.kube.access import Access, KubeUser
from mig_spawner.testing.kube.audit import AuditLog
from mig_spawner.testing.kube.handlers import build_app
from mig_spawner.testing.kube.knobs import KubeKnobs
from mig_spawner.testing.kube.objects import Objects
from mig_spawner.testing.kube.registry import Registry

_HOST = "127.0.0.1"

_FIRST_OBJECTS = (
    (resources.NAMESPACES, {"metadata": {"name": "default"}}),
    (resources.NAMESPACES, {"metadata": {"name": "kube-system"}}),
    (resources.NAMESPACES, {"metadata": {"name": "kube-node-lease"}}),
    (resources.PRIORITY_CLASSES, {"metadata": {"name": "system-cluster-critical"}, "value": 2_000_000_000}),
    (resources.PRIORITY_CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
    (resources.RUNTIME_CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"}),
    (
        resources.CLUSTER_ROLES,
        {
            "metadata": {"name": "cluster-admin"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        },
    ),
)


class EmbeddedKube:
    """A Kubernetes API server in memory, on loopback, over plain HTTP.

    Use as an async context manager, in any event loop: `async with EmbeddedKube() as kube`. It starts with the
    namespaces `default`, `kube-system` and `kube-node-lease` and the runtime class `nvidia`; it has no nodes and runs
    nothing: that is the `Kubelet`'s work. Entering the same instance again goes on with the same objects at the same
    address, as a restart of an API server does; nothing is kept on disk.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        knobs: KubeKnobs | None = None,
        tokens: Mapping[str, KubeUser] | None = None,
        anonymous: bool = True,
        audit_log: Path | None = None,
    ) -> None:
        """`port` of 0 takes a free one. `tokens` maps bearer tokens to users, whom RBAC then binds, and makes an unknown
        token a 401; `None` takes any token for an admin's. `anonymous` takes a request without a token for an admin's,
        as kubectl needs it, which sends no token over plain HTTP. `audit_log` is a file that gets a line for each object
        that was created, see `audit`."""
        self.knobs = knobs if knobs is not None else KubeKnobs()
        self._port = port
        self._objects = Objects()
        self._registry = Registry(self._objects, self.knobs)
        self._access = Access(self._objects, tokens, anonymous=anonymous)
        self._audit = AuditLog(audit_log)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where the API is, without a slash at the end; known once it is started."""
        if self._runner is None:
            raise RuntimeError("EmbeddedKube has no address before it is started: use `async with`")
        return f"http://{_HOST}:{self._port}"

    async def __aenter__(self) -> Self:
        for resource, manifest in _FIRST_OBJECTS:
            if self._objects.find(resource, "", manifest["metadata"]["name"]) is None:  # type: ignore[index]
                self._registry.create(resource, "", manifest)
        runner = web.AppRunner(
            build_app(self._registry, self._access, self._audit), access_log=None, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, _HOST, self._port)
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._port = runner.addresses[0][1]
        self._runner = runner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        runner, self._runner = self._runner, None
        self._objects.end_feeds()
        if runner is not None:
            await runner.cleanup()

    def write_kubeconfig(self, path: Path, *, token: str | None = None, namespace: str = "default") -> Path:
        """Writes a kubeconfig for this server and returns the absolute path. Without `token` it is anonymous."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "embedded", "user": {"token": token} if token else {}}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": namespace}}
            ],
            "current-context": "embedded",
        }
        path = path.absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def cut_watches(self) -> None:
        """Ends every open watch, as a restart of an API server does."""
        self._objects.end_feeds()

    def forget_history(self) -> None:
        """Compacts: a watch that wants to start in the past is told 410 Gone."""
        self._objects.forget_history()
