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

import psycopg
from psycopg.rows import dict_row

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
        rows: what a query finds, by the names of its columns.
        path: the file, if it is one.
    """

    kind: str
    url: str | None
    execute: Callable[[str], list[Any]]
    rows: Callable[[str], list[dict[str, Any]]] = lambda _: []
    path: Path | None = None
    stores: list[SQLStore] = field(default_factory=list)
    ends: list[Callable[[], None]] = field(default_factory=list)

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
        for end in self.ends:
            end()


_numbers = itertools.count(1)


def sqlite_place(folder: Path, name: str = "") -> Place:
    path = folder / (name or f"ledger-{next(_numbers)}.sqlite")

    def execute(statement: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(statement).fetchall()
            connection.commit()
            return rows

    return Place("sqlite", f"sqlite:///{path}", execute, lambda query: sqlite_rows(path, query), path)


def sqlite_rows(path: Path, query: str) -> list[dict[str, Any]]:
    """What a query finds in a file, which is only read."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def postgres_place(server: Server, name: str) -> Place:
    own: list[psycopg.Connection[dict[str, Any]]] = []

    def rows(statement: str) -> list[dict[str, Any]]:
        if not own:
            own.append(psycopg.connect(server.conninfo(name), autocommit=True, row_factory=dict_row))
        cursor = own[0].execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def close() -> None:
        for connection in own:
            connection.close()

    place = Place("postgres", server.url(name), lambda text: [tuple(row.values()) for row in rows(text)], rows)
    place.ends.append(close)
    return place


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
