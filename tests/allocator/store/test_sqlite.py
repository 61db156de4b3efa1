"""What only SQLite has: a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import StoreUnavailable


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = SQLStore(f"sqlite:///{tmp_path / 'nope' / 'ledger.sqlite'}")
    with pytest.raises(StoreUnavailable, match="folder must exist"):
        store.open()
    store.close()


def test_the_file_is_safe_against_power_loss(tmp_path: Path) -> None:
    store = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    with store.database.engine.begin() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    store.close()
