"""Fixtures of the allocator's tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.wire.client import AllocatorClient
from tests.allocator.rig import SERVICE_TOKEN, Clock, Rig, open_app
from tests.allocator.store.place import Place, postgres_place, sqlite_place
from tests.controlplane.fixture import control_plane
from tests.kube.referee import referee
from tests.postgres.fixture import postgres
from tests.postgres.server import Server

__all__ = ["control_plane", "postgres", "referee"]

NODES = ("n1", "n2", "n3")

MakeRig = Callable[..., Awaitable[Rig]]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("JUPYTERHUB_", "MIG_")):
            monkeypatch.delenv(name)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that was just made; tests copy it, which is faster than making one each."""
    path = tmp_path_factory.mktemp("ledger") / "empty.sqlite"
    store = SQLStore(f"sqlite:///{path}")
    store.open()
    store.close()
    return path


@pytest.fixture
async def make_rig(tmp_path: Path, clock: Clock, empty_ledger: Path) -> AsyncIterator[MakeRig]:
    """Allocators with these traits; each call starts one, all on the same ledger. `check_ledger` is run at the end."""
    async with rigs(tmp_path, clock, empty_ledger) as make:
        yield make


@asynccontextmanager
async def rigs(
    tmp_path: Path, clock: Clock, empty_ledger: Path, server: Server | None = None
) -> AsyncIterator[MakeRig]:
    """As `make_rig`, for fixtures of another event loop, and for ledgers on PostgreSQL."""
    places: dict[str, Place] = {}

    async with AsyncExitStack() as stack:

        def place_of(name: str) -> Place:
            if server is not None:
                made = server.database()
                stack.callback(server.drop, made)
                place = postgres_place(server, made)
            else:
                if not (tmp_path / name).exists():
                    shutil.copy(empty_ledger, tmp_path / name)
                place = sqlite_place(tmp_path, name)
            stack.callback(place.close)
            return place

        async def make(database: str = "ledger.sqlite", **traits: Any) -> Rig:
            tokens = {name: f"agent-token-of-{name}" for name in NODES}
            path = tmp_path / database
            if database not in places:
                places[database] = place_of(database)
            place = places[database]
            app = await open_app(path, tokens, traits.pop("clock", clock), **{"database_url": place.url, **traits})
            stack.push_async_callback(app.close)
            rig = Rig(app, AllocatorClient(app.url, SERVICE_TOKEN), clock, path, tokens, place.rows)
            rig.clients.append(rig.hub)

            async def end() -> None:
                for client in rig.clients:
                    await client.aclose()
                rig.check()

            stack.push_async_callback(end)
            return rig

        yield make


@pytest.fixture
async def rig(make_rig: MakeRig) -> Rig:
    """A running allocator on an empty ledger, with a clock that tests move."""
    return await make_rig()
