"""Bringing a database to the schema of this version, by alembic.

The migrations are inside the package and run when the allocator starts, in the transaction that the caller holds: two
replicas that start at once take turns, and a failed upgrade leaves the old schema.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy import Connection

from mig_spawner.errors import StoreUnavailable


def upgrade(connection: Connection) -> None:
    """Apply every migration that the database lacks.

    Raises:
        StoreUnavailable: the database was made by a newer version of mig-spawner.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreUnavailable(
            f"The database does not fit this version of mig-spawner: {error}. Start the version that last used it, or a newer one."
        ) from error
