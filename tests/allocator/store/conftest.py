"""Every kind of database that a ledger may live in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from tests.allocator.store.place import Place, memory_place, postgres_place, sqlite_place
from tests.postgres.fixture import postgres
from tests.postgres.server import Server

__all__ = ["postgres"]

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


def place_of(kind: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty place of a kind, removed at the end."""
    match kind:
        case "memory":
            place, server, name = memory_place(), None, ""
        case "sqlite":
            folder: Path = request.getfixturevalue("tmp_path")
            place, server, name = sqlite_place(folder), None, ""
        case _:
            server = request.getfixturevalue("postgres")
            name = server.database()
            place = postgres_place(server, name)
    yield place
    place.close()
    if isinstance(server, Server):
        server.drop(name)


@pytest.fixture(params=["sqlite", POSTGRES, "memory"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place of each kind."""
    yield from place_of(request.param, request)


@pytest.fixture(params=["sqlite", POSTGRES])
def lasting(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place of each kind that outlives the process."""
    yield from place_of(request.param, request)


@pytest.fixture
def store(place: Place) -> SQLStore:
    """An empty ledger."""
    return place.store()
