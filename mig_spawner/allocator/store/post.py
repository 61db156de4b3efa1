"""The part of the port that is about sending: webhooks, and the deliveries that were written with the events they carry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime

from mig_spawner.allocator.store.outbox import EventRecord
from mig_spawner.wire.event import EventKind
from mig_spawner.wire.webhook import DeliveryState


@dataclass(frozen=True, slots=True)
class WebhookRecord:
    """A webhook. Its address may hold a secret of its own, so it is not shown."""

    webhook_id: str
    url: str = field(repr=False)
    kinds: tuple[EventKind, ...]
    description: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one webhook.

    Attributes:
        attempts: how often it was tried.
        next_at: when it is due, while it is pending.
        status: the HTTP status of the last answer; None when none came.
        error: why the last attempt failed; empty when it did not.
    """

    number: int
    webhook_id: str
    event: EventRecord
    state: DeliveryState
    attempts: int
    next_at: datetime
    status: int | None
    error: str


class Post(ABC):
    """What a transaction can say of webhooks. An event is put on its way to every webhook that wants it when it is written."""

    @abstractmethod
    def add_webhook(self, webhook: WebhookRecord) -> None: ...

    @abstractmethod
    def webhooks(self) -> list[WebhookRecord]:
        """All of them, oldest first."""

    @abstractmethod
    def drop_webhook(self, webhook_id: str) -> bool:
        """Forget a webhook and its deliveries; whether there was one."""

    @abstractmethod
    def delivery_counts(self) -> dict[tuple[str, DeliveryState], int]:
        """How many deliveries there are by webhook and state."""

    @abstractmethod
    def is_delivery_due(self) -> bool:
        """Whether there is something to claim. Cheap."""

    @abstractmethod
    def claim_deliveries(self, limit: int, until: datetime) -> list[Delivery]:
        """Take those that are due, the longest due first. Nobody else gets them until `until`, by when they are due again."""

    @abstractmethod
    def finish_delivery(
        self, claimed: Delivery, state: DeliveryState, *, next_at: datetime, status: int | None, error: str
    ) -> None:
        """Count an attempt and write what became of it, unless somebody else has meanwhile."""

    @abstractmethod
    def deliveries(
        self, webhook_id: str, *, state: DeliveryState | None, before: int | None, limit: int
    ) -> list[Delivery]:
        """Deliveries of a webhook, newest first: those with a number below `before`, at most so many."""

    @abstractmethod
    def redeliver(self, webhook_id: str, number: int) -> Delivery | None:
        """Begin a delivery anew, whatever became of it; None if there is no such delivery."""
