"""The connection of a transaction, which knows whether anything was written."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Executable, NestedTransaction


class Session:
    """Passes statements on.

    Args:
        shared: others are in the same transaction of the database: the first write here is preceded by a savepoint, so that
            everything from there on can be undone alone.
    """

    def __init__(self, connection: Connection, *, shared: bool = False) -> None:
        self.connection = connection
        self.savepoint: NestedTransaction | None = None
        self.wrote = False
        self._shared = shared

    def execute(self, statement: Executable, parameters: Any = None) -> Any:
        """Run a statement; the result is SQLAlchemy's `CursorResult`."""
        if statement.is_dml:
            self._before_write()
        return self.connection.execute(statement, parameters)

    def begin_nested(self) -> NestedTransaction:
        """A part that can fail alone, as a context manager."""
        self._before_write()
        return self.connection.begin_nested()

    def _before_write(self) -> None:
        if self._shared and self.savepoint is None:
            self.savepoint = self.connection.begin_nested()
        self.wrote = True
