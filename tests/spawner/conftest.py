"""Documents to test with, an allocator that follows a script, and a spawner without a hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from kubernetes_asyncio import client, config
from kubespawner.clients import load_config

from mig_spawner.spawner import MIGSpawner
from mig_spawner.spawner import spawner as spawner_module
from mig_spawner.spawner.background import close_clients
from mig_spawner.testing.kube import EmbeddedKube
from mig_spawner.wire.availability import Availability, OfferDocument
from mig_spawner.wire.client import ONCE, AllocatorClient
from mig_spawner.wire.lease import LeaseDocument, LeaseState
from mig_spawner.wire.menu.seen import SeenMenu
from tests.controlplane.fixture import control_plane
from tests.kube.referee import Referee, referee

__all__ = ["control_plane", "referee"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MENU: list[dict[str, Any]] = [
    {"id": "none", "display_name": "No GPU", "none": True, "default": True},
    {"id": "small", "display_name": "Small slice", "profile": "1g.10gb", "mem_limit": "16G", "shm": "2G"},
    {"id": "medium", "display_name": "Medium slice", "profile": "3g.40gb"},
    {"id": "about-12", "display_name": "About 12 GB", "min_memory": 12},
    {"id": "whole", "display_name": "Whole GPU", "whole": True},
]
_SIZES = {None: (80, 98, 1.0), "1g.10gb": (10, 14, 0.125), "2g.20gb": (20, 28, 0.25), "3g.40gb": (40, 42, 0.5)}


def make_offer(profile: str | None, free: int, total: int, reason: str = "") -> OfferDocument:
    gb, sms, share = _SIZES[profile]
    return OfferDocument(
        profile=profile,
        free=free,
        total=total,
        memory_gb=gb,
        memory_mib=gb * 1024 - 512,
        multiprocessors=sms,
        multiprocessors_total=98,
        share=share,
        models=("NVIDIA A100",),
        reason=reason,
    )


def make_availability(*offers: OfferDocument, queue_length: int = 0, simulated: bool = False) -> Availability:
    return Availability(
        as_of=NOW, offers=offers, queue_length=queue_length, nodes=1, nodes_silent=0, simulated=simulated
    )


def make_lease(state: LeaseState | str = LeaseState.READY, **changes: Any) -> LeaseDocument:
    state = LeaseState(state)
    profile = changes.pop("profile", "1g.10gb")
    placed = state is not LeaseState.QUEUED and not (state is LeaseState.CLOSED and "placement" not in changes)
    document: dict[str, Any] = {
        "lease_id": "lease-1",
        "holder": {"user_id": "7", "server_name": "", "user_name": "ada"},
        "state": state,
        "asked": profile or "a whole GPU",
        "queued_at": NOW.isoformat(),
        "device_uuid": "MIG-1111" if placed and state is not LeaseState.GRANTED else None,
    }
    if placed:
        document["placement"] = {
            "node": "gpu-a",
            "gpu_uuid": "GPU-1",
            "model": "NVIDIA A100",
            "start": 2,
            "size": 1,
            "profile": profile,
            "memory_mib": 9728,
            "multiprocessors": 14,
            "share": 0.125,
            "generation": 5,
            "granted_at": NOW.isoformat(),
            "expires_at": None,
        }
    return LeaseDocument.model_validate(document | changes)


class ScriptedAllocator:
    """An allocator that answers from a script, for what a real one does only on bad days.

    `answers` are given to the questions about a lease in turn, the last one for ever: a document, a status with a problem code,
    or an exception in place of an answer. `changes` are given in the same way to whoever changes one.
    """

    def __init__(self) -> None:
        self.availability = make_availability(
            make_offer("1g.10gb", 5, 7), make_offer("3g.40gb", 1, 2), make_offer(None, 1, 1)
        )
        self.answers: list[LeaseDocument | tuple[int, str] | Exception] = [make_lease()]
        self.changes: list[LeaseDocument | tuple[int, str] | Exception] = []
        self.menu = SeenMenu(entries=())
        self.down = False
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.release_failures = 0

    def paths(self, method: str) -> list[str]:
        return [path for called, path, _ in self.calls if called == method]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for _, called, body in self.calls if called == path]

    def client(self) -> AllocatorClient:
        return AllocatorClient(
            "http://allocator/services/mig", "a-token", patience=ONCE, transport=httpx.MockTransport(self._answer)
        )

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/services/mig/api/v1/")
        if self.down:
            raise httpx.ConnectError("refused", request=request)
        self.calls.append((request.method, path, json.loads(request.content or b"{}")))
        if path == "availability":
            return httpx.Response(200, content=self.availability.model_dump_json())
        if path == "menu":
            return httpx.Response(200, content=self.menu.model_dump_json(by_alias=True))
        if path == "tickets":
            return httpx.Response(200, json={"ticket": "a-ticket", "expires_at": NOW.isoformat()})
        if path.endswith("release"):
            if self.release_failures:
                self.release_failures -= 1
                return httpx.Response(503, json={})
            closed = make_lease("closed", reason="stopped")
            if path == "leases/release":
                return httpx.Response(200, content=f'{{"leases": [{closed.model_dump_json()}]}}')
            return httpx.Response(200, content=closed.model_dump_json())
        script = self.changes if request.method == "PATCH" else self.answers
        answer = script.pop(0) if len(script) > 1 else script[0]
        match answer:
            case Exception():
                raise answer
            case (status, code):
                problem = {"status": status, "code": code, "title": code, "detail": f"The script says {code}."}
                return httpx.Response(status, json=problem)
            case _:
                await asyncio.sleep(0)
                return httpx.Response(200, content=answer.model_dump_json())


@pytest.fixture
def lease() -> Callable[..., LeaseDocument]:
    return make_lease


@pytest.fixture
def offer() -> Callable[..., OfferDocument]:
    return make_offer


@pytest.fixture
def availability() -> Callable[..., Availability]:
    return make_availability


@pytest.fixture
def menu() -> list[dict[str, Any]]:
    return [dict(entry) for entry in MENU]


@pytest.fixture
async def allocator(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedAllocator]:
    scripted = ScriptedAllocator()
    client = scripted.client()
    monkeypatch.setattr(spawner_module, "shared_client", lambda *_: client)
    yield scripted
    await close_clients()
    await client.aclose()


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster that nobody answers for; spawners ask for its address when they are made."""
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "default"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    load_config.cache_clear()
    yield path
    load_config.cache_clear()


class Orm:
    """The row of a server, as far as a spawner without a hub looks at it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.server = None
        self.user_options: dict[str, Any] = {}


class Someone:
    """A user, as far as a spawner without a hub looks at one."""

    def __init__(self, name: str, user_id: int) -> None:
        self.name = name
        self.escaped_name = name
        self.id = user_id
        self.url = f"/user/{name}/"
        self.settings: dict[str, Any] = {}


@pytest.fixture
async def make_spawner(
    kubeconfig: Path, allocator: ScriptedAllocator, menu: list[dict[str, Any]]
) -> AsyncIterator[Callable[..., MIGSpawner]]:
    """Makes spawners without a hub, for the person `ada`, with the menu of these tests."""

    def make(**traits: Any) -> MIGSpawner:
        user = Someone(traits.pop("user_name", "ada"), traits.pop("user_id", 7))
        return MIGSpawner(_mock=True, user=user, **{"menu": menu, "allocator_token": "a-secret-token", **traits})

    yield make
    for task in asyncio.all_tasks():
        if task.get_coro().__qualname__.startswith("shared_client."):  # type: ignore[union-attr]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class Embedded:
    """A cluster in memory, and the allocator's client.

    Attributes:
        api: the CoreV1Api of somebody who may do all.
    """

    kube: EmbeddedKube
    api: Any
    client: AllocatorClient


@pytest.fixture
async def embedded(tmp_path: Path, allocator: ScriptedAllocator, referee: Referee | None) -> AsyncIterator[Embedded]:
    """The pods that were made there are judged at the end."""
    audit_log = tmp_path / "kubernetes-audit.log"
    async with EmbeddedKube(audit_log=audit_log) as kube:
        configuration = client.Configuration()
        path = kube.write_kubeconfig(tmp_path / "kubeconfig.yaml")
        await config.load_kube_config(str(path), client_configuration=configuration)
        async with client.ApiClient(configuration) as api_client, allocator.client() as allocator_client:
            yield Embedded(kube, client.CoreV1Api(api_client), allocator_client)
            await close_clients()
    if referee is not None:
        referee.judge(audit_log)
