"""A small Kubernetes client: what the kubelet needs to speak to any API server, embedded or real."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from mig_spawner.testing.kube.patches import MERGE_PATCH
from mig_spawner.testing.kube.resources import Manifest

_log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_WATCH_S = 60
_RETRY_S = 0.2


class ApiError(Exception):
    """The API refused, or could not be reached (`code` 0)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code


@dataclass(frozen=True)
class Cluster:
    """Where an API server is and how to show who we are."""

    server: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None

    @classmethod
    def read(cls, where: str | Path) -> Cluster:
        """From a URL, or from the current context of a kubeconfig file. Raises `ValueError` for an unusable file."""
        if isinstance(where, str) and where.startswith(("http://", "https://")):
            return cls(where.rstrip("/"))
        path = Path(where)
        try:
            config = yaml.safe_load(path.read_text())
            context = _named(config["contexts"], config["current-context"])["context"]
            cluster = _named(config["clusters"], context["cluster"])["cluster"]
            user = _named(config["users"], context["user"]).get("user") or {}
            server = str(cluster["server"]).rstrip("/")
        except (KeyError, TypeError, yaml.YAMLError) as error:
            raise ValueError(f"{path} is no kubeconfig that can be used: {error!r}") from error
        headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        return cls(server, headers, _tls(cluster, user) if server.startswith("https://") else None)


def _named(entries: list[Manifest], name: str) -> Manifest:
    return next((entry for entry in entries if entry["name"] == name), {})


def _tls(cluster: Manifest, user: Manifest) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(authority).decode() if authority else None
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate"):
        context.load_cert_chain(user["client-certificate"], user.get("client-key"))
    return context


class KubeClient:
    """Requests by path. Every refusal is an `ApiError`. Use as an async context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._cluster.tls if self._cluster.tls is not None else True)
        self._session = aiohttp.ClientSession(headers=dict(self._cluster.headers), connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> Manifest:
        return await self._request("GET", path)

    async def create(self, path: str, body: Manifest) -> Manifest:
        return await self._request("POST", path, body)

    async def patch(self, path: str, body: Manifest, content_type: str = MERGE_PATCH) -> Manifest:
        return await self._request("PATCH", path, body, content_type)

    async def delete(self, path: str, *, grace: int | None = None, uid: str | None = None) -> Manifest:
        """Deletes; `uid` spares a new object of the same name (`ApiError` 409)."""
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self._request("DELETE", path, options)

    async def watch(self, path: str, revision: str) -> AsyncGenerator[tuple[str, Manifest], None]:
        """The changes after `revision` until the server ends the watch."""
        query = {"watch": "true", "resourceVersion": revision, "timeoutSeconds": str(_WATCH_S)}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S, sock_read=_WATCH_S + _TIMEOUT_S)
        try:
            async with self._open.get(self._cluster.server + path, params=query, timeout=timeout) as response:
                await _check(response)
                # Lines may be longer than the reader's limit, so they are cut here.
                pending = b""
                async for chunk in response.content.iter_any():
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in filter(None, lines):
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise ApiError(int(event["object"].get("code", 500)), event["object"].get("message", ""))
                        yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, f"the watch of {path} broke: {error!r}") from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open: use `async with`")
        return self._session

    async def _request(self, method: str, path: str, body: Any = None, content_type: str = "") -> Manifest:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type or "application/json"} if data is not None else {}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        url = self._cluster.server + path
        try:
            async with self._open.request(method, url, data=data, headers=headers, timeout=timeout) as response:
                await _check(response)
                answer: Manifest = await response.json(content_type=None)
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, f"{method} {path}: {error!r}") from error


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    text = await response.text()
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        message = text[:200]
    raise ApiError(response.status, message)


class Mirror:
    """A copy of all objects of one resource that follows the server, whatever happens to the connection."""

    def __init__(self, client: KubeClient, path: str, on_change: Callable[[str, Manifest], None]) -> None:
        """`on_change` is called, for each object, with ADDED, MODIFIED or DELETED and the object."""
        self.objects: dict[str, Manifest] = {}
        self._client = client
        self._path = path
        self._on_change = on_change

    async def load(self) -> str:
        """Takes over what the server has now and returns the revision of that. Raises `ApiError`."""
        page = await self._client.get(self._path)
        found = {key_of(item): item for item in page["items"]}
        for key in self.objects.keys() - found.keys():
            self._apply("DELETED", self.objects[key])
        for key, item in found.items():
            known = self.objects.get(key)
            if known is not None and known["metadata"]["uid"] != item["metadata"]["uid"]:
                self._apply("DELETED", known)
                known = None
            if known is None or known["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._apply("ADDED" if known is None else "MODIFIED", item)
        return str(page["metadata"]["resourceVersion"])

    async def follow(self, revision: str) -> None:
        """Follows for ever from `revision` on."""
        current: str | None = revision
        while True:
            try:
                if current is None:
                    current = await self.load()
                async with contextlib.aclosing(self._client.watch(self._path, current)) as changes:
                    async for kind, obj in changes:
                        current = obj["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            self._apply(kind, obj)
            except ApiError as error:
                _log.debug("%s is read again: %s", self._path, error)
                current = None
                await asyncio.sleep(_RETRY_S)

    def _apply(self, kind: str, obj: Manifest) -> None:
        if kind == "DELETED":
            self.objects.pop(key_of(obj), None)
        else:
            self.objects[key_of(obj)] = obj
        self._on_change(kind, obj)


def key_of(obj: Manifest) -> str:
    """`namespace/name`, or the bare name of what has no namespace."""
    namespace = obj["metadata"].get("namespace")
    return f"{namespace}/{obj['metadata']['name']}" if namespace else str(obj["metadata"]["name"])


def pod_path(pod: Manifest, subresource: str = "") -> str:
    """The path of a pod or of one of its subresources."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    return f"{path}/{subresource}" if subresource else path
