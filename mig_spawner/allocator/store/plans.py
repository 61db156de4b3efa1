"""The part of the port that is about planning: what was asked for, and the plans that were made of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime

from mig_spawner.domain.lease import Lease
from mig_spawner.domain.policy import Plan


@dataclass(frozen=True, slots=True, eq=False)
class PlanRecord:
    """A plan for placement, as it stands in the ledger. The same row gives the same object, within one process.

    Attributes:
        number: counts plans, from 1 on.
        arrivals: how many leases had been asked for when it was made.
    """

    number: int
    made_at: datetime
    arrivals: int
    plan: Plan


class Plans(ABC):
    """A part of `Transaction`."""

    @abstractmethod
    def arrivals(self) -> int:
        """How many leases have ever been asked for, as far as this ledger knows."""

    @abstractmethod
    def newest(self, most: int) -> list[Lease]:
        """The newest leases in any state, at most so many, in order of arrival."""

    @abstractmethod
    def plan(self) -> PlanRecord | None:
        """The newest plan for placement; None before the first."""

    @abstractmethod
    def put_plan(self, number: int, arrivals: int, plan: Plan) -> bool:
        """Make this the newest plan, unless another replica has written one of this number already. Whether it was written."""
