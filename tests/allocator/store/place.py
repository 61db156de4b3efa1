"""Where a ledger of a test lives, whatever the kind of database."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mig_spawner.allocator.store.memory import MemoryStore
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain.lease import Holder, Queued
from mig_spawner.domain.request import WholeRequest
from tests.postgres.server import Server


@dataclass
class Place:
    """An empty place for a ledger.

    Attributes:
        url: None for a ledger in memory.
        execute: run a statement past the store, committed; its rows.
    """

    kind: str
    url: str | None
    execute: Callable[[str], list[Any]]
    stores: list[SQLStore] = field(default_factory=list)

    def store(self, *, clock: Callable[[], datetime] | None = None, opened: bool = True) -> SQLStore:
        """A store there; each is a replica of its own."""
        store = MemoryStore(clock=clock) if self.url is None else SQLStore(self.url, clock=clock)
        self.stores.append(store)
        if opened:
            store.open()
        return store

    def close(self) -> None:
        for store in self.stores:
            store.close()


_numbers = itertools.count(1)


def sqlite_place(folder: Path, name: str = "") -> Place:
    path = folder / (name or f"ledger-{next(_numbers)}.sqlite")

    def execute(statement: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(statement).fetchall()
            connection.commit()
            return rows

    return Place("sqlite", f"sqlite:///{path}", execute)


def postgres_place(server: Server, name: str) -> Place:
    def execute(statement: str) -> list[Any]:
        with server.connect(name) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    return Place("postgres", server.url(name), execute)


def memory_place() -> Place:
    place = Place("memory", None, lambda _: [])

    def execute(statement: str) -> list[Any]:
        with place.stores[-1].database.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    place.execute = execute
    return place


NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def add(store: SQLStore, lease_id: str) -> None:
    """Somebody who waits for a whole GPU, in a transaction of its own."""
    with store.writing() as tx:
        tx.add(waiting(lease_id), who="test", why="test")


def waiting(lease_id: str) -> Queued:
    return Queued(lease_id=lease_id, holder=Holder(lease_id, "", ""), request=WholeRequest(), queued_at=NOW)
