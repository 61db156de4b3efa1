"""Webhooks: addresses that are told of leases, and what became of each delivery."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, field_validator

from mig_spawner.wire.base import Answer, Document, Label
from mig_spawner.wire.event import EventKind, LeaseEvent

_ADDRESS: Final = r"[Hh][Tt][Tt][Pp][Ss]?://[A-Za-z0-9._:\[\]-]+([/?][!\"$-~]*)?"
"""No user, no fragment, and ASCII alone: what looks like one host and is another does not get so far."""

Address = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2000,
        examples=["https://hooks.example.org/mig"],
        json_schema_extra={"pattern": f"^{_ADDRESS}$"},
    ),
]


class WebhookRequest(Document):
    """Ask for events to be sent somewhere.

    Attributes:
        url: must be at one of the origins that the allocator's configuration allows.
        kinds: which events; all of them if left out.
        description: for people.
    """

    url: Address
    kinds: Annotated[tuple[EventKind, ...], Field(min_length=1, max_length=len(EventKind))] = tuple(EventKind)
    description: Label = ""

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        if re.fullmatch(_ADDRESS, url) is None:
            raise ValueError("write it like https://hooks.example.org/mig, without a user, a fragment and blanks")
        return url

    @field_validator("kinds")
    @classmethod
    def _once_each(cls, kinds: tuple[EventKind, ...]) -> tuple[EventKind, ...]:
        return tuple(kind for kind in EventKind if kind in kinds)


class WebhookDocument(Answer):
    """A webhook as an admin sees it. `pending` and `dead` count its deliveries."""

    webhook_id: str
    url: str
    kinds: tuple[EventKind, ...]
    description: str
    created_at: datetime
    created_by: str
    pending: int
    dead: int


class WebhookCreated(WebhookDocument):
    """A new webhook, with the secret that signs its deliveries. It is shown this once."""

    secret: str = Field(repr=False)


class WebhookList(Answer):
    """All webhooks, oldest first."""

    webhooks: tuple[WebhookDocument, ...]


class DeliveryState(StrEnum):
    PENDING = "pending"
    """It will be tried, or tried again."""
    DELIVERED = "delivered"
    """The other side said 2xx."""
    DEAD = "dead"
    """It was tried as often as it is, or cannot be. It can be delivered again by hand."""


class DeliveryDocument(Answer):
    """One event on its way to one webhook.

    Attributes:
        event: the number of the event.
        attempts: how often it was tried since it was last asked for.
        next_at: when it is tried again; None unless pending.
        status: the HTTP status of the last answer; None when none came.
        error: why the last attempt failed, a sentence; empty when it did not.
    """

    number: int
    event: int
    kind: EventKind
    lease_id: str
    state: DeliveryState
    attempts: int
    next_at: datetime | None
    status: int | None
    error: str


class DeliveryList(Answer):
    """Deliveries, newest first.

    Attributes:
        next: the `cursor` of the page that follows; None when there is none.
    """

    deliveries: tuple[DeliveryDocument, ...]
    next: str | None = None


class WebhookPayload(Answer):
    """What is sent, in the manner of Standard Webhooks. `type` is `lease.` and the kind; `timestamp` when it happened."""

    type: str
    timestamp: datetime
    data: LeaseEvent
