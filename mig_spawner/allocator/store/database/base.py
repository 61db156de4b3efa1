"""The port to a kind of database: how it connects, how a transaction is alone, how a copy is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, Engine

BUSY_TIMEOUT_S: Final = 20
"""How long a transaction waits for its turn. Ours take milliseconds; a backup may hold the database for seconds."""


class Database(ABC):
    """A database by its url. It connects when first asked.

    Attributes:
        title: its name for people.
        reading: execution options of a connection for a transaction that only reads and sees one state throughout.
        engine: the connections.
    """

    title: ClassVar[str]
    reading: ClassVar[dict[str, Any]]
    engine: Engine

    def __init__(self, url: URL) -> None:
        self.url = url

    def __repr__(self) -> str:
        # A url hides its password.
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    def be_alone(self, connection: Connection) -> None:
        """At the first line of a writing transaction: wait until no other writes, of whatever process or replica, and keep them out
        until the end of this one.

        Raises:
            OperationalError: the others took longer than `BUSY_TIMEOUT_S`, or the database does not answer.
        """

    @abstractmethod
    def hint(self) -> str:
        """What to look at when it cannot be opened, as a sentence."""

    @abstractmethod
    def back_up(self, path: Path) -> None:
        """Write a whole copy, as of one moment, to a file that does not exist yet. The ledger may be in use meanwhile.

        Raises:
            StoreUnavailable: it could not be written, and is not there; the message says what to do instead.
        """

    @abstractmethod
    def backup_name(self, label: str) -> Path:
        """Where a copy goes by default."""
