"""The store on a database, by SQLAlchemy: SQLite or PostgreSQL, with the same tables and the same statements."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime

from sqlalchemy import Connection, make_url, select
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mig_spawner.allocator.store import migration, statement, tables
from mig_spawner.allocator.store.base import Store, Transaction
from mig_spawner.allocator.store.change import Slot
from mig_spawner.allocator.store.database.base import Database
from mig_spawner.allocator.store.database.postgres import PostgreSQL
from mig_spawner.allocator.store.database.sqlite import SQLite
from mig_spawner.allocator.store.session import Session
from mig_spawner.allocator.store.transaction import SQLTransaction
from mig_spawner.allocator.store.writer import Writer
from mig_spawner.errors import InvalidRequest, StoreUnavailable


def database_of(url: str) -> Database:
    """The database that a url names.

    Raises:
        InvalidRequest: the url is none, or of another kind of database.
    """
    try:
        parsed = make_url(url)
    except Exception as error:
        raise InvalidRequest(
            "The database url cannot be read. Write it like sqlite:///mig-allocator.sqlite."
        ) from error
    match parsed.get_backend_name():
        case "sqlite":
            return SQLite(parsed)
        case "postgresql":
            return PostgreSQL(parsed)
        case other:
            raise InvalidRequest(
                f"The ledger lives in SQLite or PostgreSQL, not in {other!r}. Write sqlite:///mig-allocator.sqlite, "
                f"or postgresql+psycopg://user@server/database."
            )


class SQLStore(Store):
    """The ledger in a database.

    Args:
        where: the database, or its url as SQLAlchemy writes it: `sqlite:///mig-allocator.sqlite` (a relative path),
            `sqlite:////data/…` (an absolute one) or `postgresql+psycopg://user@server/database`.
        clock: the time to use instead of the database's, for tests.

    Raises:
        InvalidRequest: the url is none, or of another kind of database.
    """

    def __init__(self, where: str | Database, *, clock: Callable[[], datetime] | None = None) -> None:
        self.database = database_of(where) if isinstance(where, str) else where
        self._clock = clock
        self._writer = Writer(self._begin, self._now)
        self._readers_slot, self._readers_turn = Slot(), threading.Lock()
        self._secret = b""
        self._installation_id = ""

    def __repr__(self) -> str:
        return f"SQLStore({self.database!r})"

    def open(self) -> None:
        with self._prepared() as connection:
            schema = migration.schema_of(connection)
            if schema is None:
                migration.upgrade(connection)
            elif schema != migration.head():
                raise StoreUnavailable(
                    f"The database has the schema {schema} of an older version; this one needs {migration.head()}. End every "
                    f"allocator that uses it, then run `mig-spawner allocator upgrade-db` with the same configuration: it makes "
                    f"a backup, and brings the database up to date."
                )
            connection.execute(statement.RAISE_GENERATION)
            row = connection.execute(select(tables.meta.c.installation_id, tables.meta.c.secret)).one()
        self._installation_id, self._secret = row.installation_id, row.secret

    def upgrade(self, *, backup: Callable[[Database, str], None]) -> tuple[str | None, str]:
        """Bring the schema up to date. Nothing happens when it is.

        Args:
            backup: makes one of the database, whose schema it is told; asked only when something has to be changed.

        Returns:
            The schema that it had, None if it was empty, and the one that it has now.
        """
        with self._prepared() as connection:
            schema = migration.schema_of(connection)
        if schema not in (None, migration.head()):
            backup(self.database, str(schema))
        with self._prepared() as connection:
            migration.upgrade(connection)
        return schema, migration.head()

    @contextmanager
    def _prepared(self) -> Iterator[Connection]:
        """A transaction that is alone, before the store is open."""
        database = self.database
        try:
            with database.engine.begin() as connection:
                database.be_alone(connection)
                yield connection
        except DBAPIError as error:
            raise StoreUnavailable(
                f"The database {database.url!r} cannot be opened: {error.orig}. {database.hint()}"
            ) from error

    def close(self) -> None:
        self.database.engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with _answered(), self._writer.transaction() as transaction:
            yield transaction

    @contextmanager
    def reading(self, *, view: bool = False) -> Iterator[Transaction]:
        # The turn comes first: who begins later must not find in the view what it cannot see in the database.
        with _answered(), self._readers_turn if view else nullcontext():
            slot = self._readers_slot if view else Slot()
            slot.checked = False
            transaction = self._first_line(self._reader, slot)
            with transaction.session.connection:
                yield transaction

    def revision(self) -> int:
        with self.reading() as transaction:
            return transaction.revision

    @property
    def installation_id(self) -> str:
        return self._installation_id

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, purpose.encode(), hashlib.sha256)

    def _begin(self, slot: Slot) -> SQLTransaction:
        return self._first_line(self.database.engine.connect, slot, alone=True)

    def _now(self, connection: Connection) -> datetime:
        if self._clock is not None:
            return self._clock().astimezone(UTC)
        now: datetime = connection.execute(statement.NOW).scalar_one()
        return now

    def _reader(self) -> Connection:
        return self.database.engine.connect().execution_options(**self.database.reading)

    def _first_line(self, connect: Callable[[], Connection], slot: Slot, *, alone: bool = False) -> SQLTransaction:
        """Begin a transaction. A connection that died unused, since the database was restarted say, is replaced by a new one."""
        for again in (True, False):
            connection = connect()
            try:
                if alone:
                    self.database.be_alone(connection)
                row = connection.execute(statement.BEGIN).one()
                now = row.now if self._clock is None else self._clock().astimezone(UTC)
                return SQLTransaction(Session(connection), now=now, revision=row.revision, slot=slot)
            except BaseException as error:
                connection.close()
                if not (again and isinstance(error, DBAPIError) and error.connection_invalidated):
                    raise
        raise AssertionError("unreachable: the second time raises")


@contextmanager
def _answered() -> Iterator[None]:
    """Translate "the database does not answer" at the border."""
    try:
        yield
    except (OperationalError, InterfaceError, InternalError) as error:
        raise StoreUnavailable(f"The ledger cannot be used now ({error.orig}). Try again.") from error
    except PoolTimeout as error:
        raise StoreUnavailable("The ledger cannot be used now (too many read it at once). Try again.") from error
