"""The store on SQLite, by SQLAlchemy.

Write-ahead log, full sync, foreign keys; every writing transaction begins with `BEGIN IMMEDIATE`, so it waits for its turn at its
first line and never finds out at its last one that somebody else has written. Inside one process a lock forms the line, since
SQLite's own waiting is a series of naps.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url, select
from sqlalchemy.exc import OperationalError

from mig_spawner.allocator.store import migration, statement, tables
from mig_spawner.allocator.store.base import Store, Transaction
from mig_spawner.allocator.store.transaction import SQLTransaction
from mig_spawner.errors import InvalidRequest, StoreUnavailable

BUSY_TIMEOUT_S: Final = 20
"""How long to wait for another replica's transaction. Ours take milliseconds; a backup may hold the file for seconds."""

_READING: Final = "mig_spawner_reading"


class SQLStore(Store):
    """The ledger in a database.

    Args:
        url: as SQLAlchemy writes it, `sqlite:///mig-allocator.sqlite` (a relative path) or `sqlite:////data/…` (an absolute one).
        clock: the time to use instead of the database's, for tests.

    Raises:
        InvalidRequest: the url is none, or not of SQLite.
    """

    def __init__(self, url: str, *, clock: Callable[[], datetime] | None = None) -> None:
        try:
            parsed = make_url(url)
        except Exception as error:
            raise InvalidRequest(
                "The database url cannot be read. Write it like sqlite:///mig-allocator.sqlite."
            ) from error
        if parsed.get_backend_name() != "sqlite":
            raise InvalidRequest(
                f"The ledger lives in SQLite, not in {parsed.get_backend_name()!r}. Write sqlite:///mig-allocator.sqlite."
            )
        if parsed.database in (None, "", ":memory:"):
            raise InvalidRequest(
                "The ledger must survive a restart: name a file, such as sqlite:///mig-allocator.sqlite."
            )
        self._clock = clock
        self._writer = threading.Lock()
        self._engine = _engine(parsed.render_as_string(hide_password=False))
        self._secret = b""
        self._installation_id = ""

    def __repr__(self) -> str:
        return f"SQLStore({self._engine.url!r})"

    def open(self) -> None:
        try:
            with self._writer, self._engine.begin() as connection:
                migration.upgrade(connection)
                connection.execute(statement.RAISE_GENERATION)
                row = connection.execute(select(tables.meta.c.installation_id, tables.meta.c.secret)).one()
        except OperationalError as error:
            raise StoreUnavailable(
                f"The database {self._engine.url!r} cannot be opened: {error.orig}. Its folder must exist and be writable."
            ) from error
        self._installation_id, self._secret = row.installation_id, row.secret

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self._writer, _answered(), self._engine.begin() as connection:
            transaction = self._transaction(connection)
            yield transaction
            transaction.finish()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        with _answered(), self._engine.connect() as connection:
            yield self._transaction(connection.execution_options(**{_READING: True}))

    def revision(self) -> int:
        with _answered(), self._engine.connect() as connection:
            return int(
                connection.execution_options(**{_READING: True}).execute(select(tables.meta.c.revision)).scalar_one()
            )

    @property
    def installation_id(self) -> str:
        return self._installation_id

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, purpose.encode(), hashlib.sha256)

    def _transaction(self, connection: Connection) -> SQLTransaction:
        return SQLTransaction(connection, now=None if self._clock is None else self._clock().astimezone(UTC))


@contextmanager
def _answered() -> Iterator[None]:
    """Translate "the database does not answer" at the border."""
    try:
        yield
    except OperationalError as error:
        raise StoreUnavailable(f"The ledger cannot be used now ({error.orig}). Try again.") from error


def _engine(url: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, record: Any) -> None:
        # Python's driver must not begin transactions of its own: `BEGIN IMMEDIATE` below is the only one.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(_READING, False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine
