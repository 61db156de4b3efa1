"""Bringing a database to the schema of this version, by alembic.

The migrations are inside the package and run in the transaction that the caller holds: two replicas that start at once take turns,
and a failed upgrade leaves the old schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from mig_spawner.errors import StoreUnavailable

HEAD: Final = "head"


def head() -> str:
    """The schema of this version."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def schema_of(connection: Connection) -> str | None:
    """The schema that a database has; None when it is empty.

    Raises:
        StoreUnavailable: it was made by a newer version of mig-spawner.
    """
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is not None and found not in known:
        raise StoreUnavailable(
            f"The database does not fit this version of mig-spawner: it has the schema {found}, which only a newer version knows. "
            f"Start the version that last used it, or a newer one."
        )
    return found


def upgrade(connection: Connection, to: str = HEAD) -> None:
    """Apply every migration that the database lacks."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
