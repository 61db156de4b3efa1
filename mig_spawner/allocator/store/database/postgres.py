"""PostgreSQL, by psycopg 3: the ledger of several replicas.

A writing transaction takes one advisory lock at its first line and has it until its end, however that comes. So transactions are as
alone as on SQLite, and none of ours ever meets a serialization failure or a deadlock: see
`docs/decisions/0004-one-writer-at-a-time.md`. A replica that stands still in the middle of one loses its session after a while,
and the others go on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, create_engine, event, text

from mig_spawner.allocator.store.database.base import BUSY_TIMEOUT_S, Database
from mig_spawner.errors import StoreUnavailable

CONNECTIONS: Final = 8
"""Of one replica, at most: one writes, the others read."""
_CONNECT: Final = {
    "connect_timeout": 5,
    "application_name": "mig-allocator",
    "tcp_user_timeout": BUSY_TIMEOUT_S * 1000,
}
"""What the url may say otherwise."""
_LOCK: Final = text("SELECT pg_advisory_xact_lock(1835623210, hashtext(coalesce(current_schema(), '')))")
_SESSION: Final = (
    f"SET lock_timeout = '{BUSY_TIMEOUT_S}s'",
    f"SET idle_in_transaction_session_timeout = '{BUSY_TIMEOUT_S}s'",
    "SET timezone = 'UTC'",
    # A granted lease is on disk. Whoever asked for less than that asked for something else; for more (remote_apply), has it.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')",
)
_DUMP_S: Final = 3600


class PostgreSQL(Database):
    """A database of a PostgreSQL server, 13 or newer."""

    title: ClassVar = "PostgreSQL"
    reading: ClassVar = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    def __init__(self, url: URL) -> None:
        super().__init__(url.set(drivername="postgresql+psycopg"))
        self.engine = create_engine(
            self.url,
            isolation_level="READ COMMITTED",
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=BUSY_TIMEOUT_S,
            pool_use_lifo=True,
            connect_args={name: value for name, value in _CONNECT.items() if name not in url.query},
        )

        @event.listens_for(self.engine, "connect")
        def _on_connect(connection: Any, record: Any) -> None:
            connection.autocommit = True
            for statement in _SESSION:
                connection.execute(statement)
            connection.autocommit = False

    def be_alone(self, connection: Connection) -> None:
        connection.execute(_LOCK)

    def hint(self) -> str:
        return "The server must be reachable, and the database and its user exist; the user makes tables in it."

    def back_up(self, path: Path) -> None:
        program = shutil.which("pg_dump")
        if program is None:
            raise StoreUnavailable(
                "There is no pg_dump here to back the ledger up with. Make a backup by your own means "
                "(`pg_dump --format=custom`, a snapshot), then say --no-backup."
            )
        # The password goes by the environment: everybody on the machine can read a command line.
        shown = self.url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
        environment = {**os.environ, **({"PGPASSWORD": str(self.url.password)} if self.url.password else {})}
        argv = [program, "--format=custom", f"--file={path}", f"--dbname={shown}"]
        if path.exists():
            raise StoreUnavailable(f"No copy of the ledger could be written to {path}: it exists already.")
        done = subprocess.run(  # noqa: S603  # a program of PostgreSQL's, and no shell
            argv, env=environment, capture_output=True, text=True, check=False, timeout=_DUMP_S, umask=0o077
        )
        if done.returncode:
            path.unlink(missing_ok=True)
            raise StoreUnavailable(
                f"pg_dump could not back the ledger up: {done.stderr.strip()[-500:]} Make a backup by your own means, then say --no-backup."
            )

    def backup_name(self, label: str) -> Path:
        return Path(f"{self.url.database}.{label}.dump")
