"""SQLite: the ledger as a file beside the allocator.

Write-ahead log, full sync, foreign keys; every writing transaction begins with `BEGIN IMMEDIATE`, so it waits for its turn at its
first line and never finds out at its last one that somebody else has written.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event

from mig_spawner.allocator.store.database.base import BUSY_TIMEOUT_S, Database
from mig_spawner.errors import InvalidRequest, StoreUnavailable

_READING: Final = "mig_spawner_reading"
PRAGMAS: Final = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")


class SQLite(Database):
    """A file on a local disk.

    Raises:
        InvalidRequest: the url names no file.
    """

    title: ClassVar = "SQLite"
    reading: ClassVar = {_READING: True}

    def __init__(self, url: URL) -> None:
        super().__init__(url)
        if url.database in (None, "", ":memory:"):
            raise InvalidRequest(
                "The ledger must survive a restart: name a file, such as sqlite:///mig-allocator.sqlite."
            )
        self.path = Path(str(url.database))
        # Threads hand a transaction on to each other, see `sql.SQLStore`.
        self.engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})
        prepare(self.engine)

    def be_alone(self, connection: Connection) -> None:
        """`BEGIN IMMEDIATE` has seen to it."""

    def hint(self) -> str:
        return "Its folder must exist and be writable."

    def back_up(self, path: Path) -> None:
        try:
            with path.open("xb"):
                pass
            path.chmod(0o600)
            with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(path)) as target:
                source.backup(target)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"No copy of the ledger could be written to {path}: {error}.") from error

    def backup_name(self, label: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{label}")


def prepare(engine: Engine) -> None:
    """Set up every connection of an engine: durable, and with no transactions but ours."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, record: Any) -> None:
        # Python's driver must not begin transactions of its own: `BEGIN IMMEDIATE` below is the only one.
        connection.isolation_level = None
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING, False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
