"""`mig-spawner allocator upgrade-db`: bring the ledger to the schema of this version, after a backup."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from traitlets import Bool, Unicode

from mig_spawner.allocator.app import AllocatorApp
from mig_spawner.allocator.store.database.base import Database
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import InvalidRequest, StoreError


class UpgradeApp(AllocatorApp):
    """Bring the ledger to the schema of this version, after a backup. End every allocator that uses it first.

    It takes the same configuration as the allocator. Nothing happens when the schema is that of this version already.
    """

    name = "mig-spawner allocator upgrade-db"
    description = __doc__ or ""
    subcommands = {}  # noqa: RUF012  # traitlets declares it for instances

    backup = Bool(
        True,
        help="""Write a copy of the ledger first.

        SQLite: beside it. PostgreSQL: by `pg_dump`, into the current folder; where there is none, make a backup by your own means and
        say `--no-backup`.
        """,
    ).tag(config=True)

    backup_path = Unicode(help="Where to write that copy; a file that does not exist yet. Empty: see `backup`.").tag(
        config=True
    )

    aliases = {**AllocatorApp.aliases, "backup-path": "UpgradeApp.backup_path"}  # noqa: RUF012
    flags = {  # noqa: RUF012
        "no-backup": ({"UpgradeApp": {"backup": False}}, "Make no backup: there is one already."),
    }

    def start(self) -> None:
        """Do it, and say what was done."""
        try:
            store = SQLStore(self.database_url)
            before, after = store.upgrade(backup=self._back_up if self.backup else _trust)
        except (InvalidRequest, StoreError) as error:
            self.exit(f"The ledger was not upgraded: {error}")
        else:
            store.close()
            if before == after:
                print(f"The ledger has the schema {after} of this version already.")
            elif before is None:
                print(f"The ledger was made, with the schema {after}.")
            else:
                print(f"The ledger was upgraded from the schema {before} to {after}. Start the allocator.")

    def _back_up(self, database: Database, schema: str) -> None:
        when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = Path(self.backup_path) if self.backup_path else database.backup_name(f"schema-{schema}-{when}")
        database.back_up(path)
        print(f"The ledger as it was is in {path}.")


def _trust(database: Database, schema: str) -> None:
    """Somebody has made a backup, or wants none."""
