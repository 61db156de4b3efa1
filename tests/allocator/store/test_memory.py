"""The ledger in memory fails when it is told."""

from __future__ import annotations

import pytest

from mig_spawner.allocator.store.memory import Fault, MemoryStore
from mig_spawner.errors import StoreUnavailable
from tests.allocator.store.place import waiting


@pytest.mark.parametrize(
    ("fault", "written"), [(Fault.BEFORE_BEGIN, False), (Fault.BEFORE_COMMIT, False), (Fault.AFTER_COMMIT, True)]
)
def test_it_fails_once_and_says_when(fault: Fault, written: bool) -> None:
    store = MemoryStore()
    store.open()
    store.fail_next(fault)

    def write() -> None:
        with store.writing() as tx:
            tx.add(waiting("a"), who="test", why="test")

    with pytest.raises(StoreUnavailable, match=str(fault)):
        write()
    with store.writing() as tx:
        assert (tx.lease("a") is not None) is written
    store.close()


def test_its_backup_is_refused() -> None:
    store = MemoryStore()
    with pytest.raises(StoreUnavailable, match="no backup"):
        store.database.back_up(store.database.backup_name("x"))
    store.close()
