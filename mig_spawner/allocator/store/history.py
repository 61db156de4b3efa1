"""The part of the port that looks back: leases that have ended, and everything that was done, newest first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime

from mig_spawner.domain.lease import Closed

Mark = tuple[int, int]
"""Where a look back goes on: before this change of a lease, and before this act on a node."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a lease, or one act on a node; the other of the two names is empty.

    Attributes:
        number: grows with each change of a lease, or with each act.
        before: None for the arrival of a lease.
    """

    number: int
    at: datetime
    who: str
    lease_id: str
    node: str
    before: str | None
    after: str
    why: str


class History(ABC):
    """What a transaction can say of the past."""

    @abstractmethod
    def changes(self, *, text: str = "", before: Mark | None = None, limit: int) -> tuple[list[Change], Mark | None]:
        """What was done, newest first, at most so much: before a mark, and with a text in any of its words, whatever its case.

        Returns:
            The changes, and the mark to go on from; None when there is no more.
        """

    @abstractmethod
    def closed_leases(self, *, user_name: str | None = None, before: str | None = None, limit: int) -> list[Closed]:
        """Leases that have ended, those asked for last first, at most so many: of one person or of all; before a lease, by its id."""

    @abstractmethod
    def peaks(self, user_name: str) -> dict[str | None, int]:
        """The most memory that a person was seen to use on slices of each profile (None: on whole GPUs), MiB; without what is not known."""

    @abstractmethod
    def note_node(self, name: str, *, who: str, before: str, after: str, why: str) -> None:
        """Write down what was done with a node."""
