"""A ledger that forgets everything at the end, and fails when told: for tests, simulations and people who extend the allocator.

It is SQLite in memory, so the constraints are the real ones. One transaction at a time, readers included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine

from mig_spawner.allocator.store.base import Transaction
from mig_spawner.allocator.store.database.base import Database
from mig_spawner.allocator.store.database.sqlite import prepare
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import StoreUnavailable


class Fault(StrEnum):
    """When the database goes away."""

    BEFORE_BEGIN = "before the transaction began"
    BEFORE_COMMIT = "before the commit: nothing was written"
    AFTER_COMMIT = "after the commit, before its answer: everything was written, and nobody knows"


class MemoryStore(SQLStore):
    """The ledger in memory.

    Args:
        clock: the time to use instead of the machine's.
    """

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(_Memory(), clock=clock)
        self._faults: list[Fault] = []
        self._own = threading.local()

    def fail_next(self, *faults: Fault) -> None:
        """The next writing transactions fail like this, one each."""
        self._faults += faults

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        fault = self._faults.pop(0) if self._faults else None
        if fault is Fault.BEFORE_BEGIN:
            raise StoreUnavailable(f"The ledger cannot be used now ({fault}). Try again.")
        with self._turn() as transaction:
            yield transaction
            if fault is Fault.BEFORE_COMMIT:
                raise StoreUnavailable(f"The ledger cannot be used now ({fault}). Try again.")
        if fault is Fault.AFTER_COMMIT:
            raise StoreUnavailable(f"The ledger cannot be used now ({fault}). Try again.")

    @contextmanager
    def reading(self, *, view: bool = False) -> Iterator[Transaction]:
        # There is one connection only: what reads takes its turn, or sees what its own thread is doing.
        mine: Transaction | None = getattr(self._own, "transaction", None)
        if mine is not None:
            yield mine
        else:
            with self._turn() as transaction:
                yield transaction

    @contextmanager
    def _turn(self) -> Iterator[Transaction]:
        with super().writing() as transaction:
            self._own.transaction = transaction
            try:
                yield transaction
            finally:
                self._own.transaction = None


class _Memory(Database):
    """One connection, and with it the database."""

    title: ClassVar = "SQLite in memory"
    reading: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__(URL.create("sqlite"))
        self.engine: Engine = create_engine(self.url, poolclass=StaticPool, connect_args={"check_same_thread": False})
        prepare(self.engine)

    def be_alone(self, connection: Connection) -> None:
        """The store lets one in at a time."""

    def hint(self) -> str:
        return "It is in memory."

    def back_up(self, path: Path) -> None:
        raise StoreUnavailable("A ledger in memory is not to be kept, so there is no backup of it.")

    def backup_name(self, label: str) -> Path:
        return Path(f"memory.{label}")
