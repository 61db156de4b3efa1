"""What admins do with webhooks. Every method blocks; handlers run them in a thread."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.store.base import Store
from mig_spawner.allocator.store.post import Delivery, WebhookRecord
from mig_spawner.allocator.webhook.address import origin_of
from mig_spawner.allocator.webhook.signature import secret_of
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.webhook import (
    DeliveryDocument,
    DeliveryList,
    DeliveryState,
    WebhookCreated,
    WebhookDocument,
    WebhookList,
    WebhookRequest,
)

log = logging.getLogger(__name__)

MOST: Final = 20


@dataclass(frozen=True)
class WebhookService:
    """Make, show and end webhooks, look at deliveries and begin one anew.

    Attributes:
        origins: where events may be sent, as `address` writes them.

    Every method may raise `AllocatorRefused` with a code of `ProblemCode`, and `StoreUnavailable`.
    """

    store: Store
    origins: frozenset[str]

    def create(self, request: WebhookRequest, *, who: str) -> WebhookCreated:
        """A new webhook, with its secret."""
        try:
            origin = origin_of(request.url)
        except InvalidRequest as error:
            raise refusal(ProblemCode.FORBIDDEN, f"Events may not be sent there. {error}") from error
        if origin not in self.origins:
            raise refusal(
                ProblemCode.FORBIDDEN,
                f"Events may not be sent to {origin}. Whoever runs the allocator can allow it by AllocatorApp.webhook_origins.",
            )
        with self.store.writing() as tx:
            if len(tx.webhooks()) >= MOST:
                raise refusal(ProblemCode.CONFLICT, f"There are {MOST} webhooks, and more are not kept. Delete one.")
            webhook = WebhookRecord(
                f"wh-{secrets.token_hex(8)}", request.url, request.kinds, request.description, tx.now, who
            )
            tx.add_webhook(webhook)
        log.info("%s has made the webhook %s to %s", who, webhook.webhook_id, origin)
        secret = secret_of(self.store.secret("webhook"), webhook.webhook_id)
        return WebhookCreated(**_document(webhook, {}).model_dump(), secret=secret)

    def webhooks(self) -> WebhookList:
        with self.store.reading() as tx:
            counts = tx.delivery_counts()
            return WebhookList(webhooks=tuple(_document(webhook, counts) for webhook in tx.webhooks()))

    def delete(self, webhook_id: str, *, who: str) -> None:
        """End a webhook; what was on its way is not delivered."""
        with self.store.writing() as tx:
            if not tx.drop_webhook(webhook_id):
                raise _no_webhook()
        log.info("%s has deleted the webhook %s", who, webhook_id)

    def deliveries(
        self, webhook_id: str, *, state: DeliveryState | None, before: int | None, limit: int
    ) -> DeliveryList:
        """Deliveries of a webhook, newest first; with `state` dead, those that were given up."""
        with self.store.reading() as tx:
            if all(webhook.webhook_id != webhook_id for webhook in tx.webhooks()):
                raise _no_webhook()
            found = tx.deliveries(webhook_id, state=state, before=before, limit=limit + 1)
        shown = tuple(_delivery_document(delivery) for delivery in found[:limit])
        return DeliveryList(deliveries=shown, next=str(shown[-1].number) if len(found) > limit else None)

    def redeliver(self, webhook_id: str, number: int) -> DeliveryDocument:
        """Begin a delivery anew."""
        with self.store.writing() as tx:
            delivery = tx.redeliver(webhook_id, number)
        if delivery is None:
            raise refusal(ProblemCode.NOT_FOUND, "There is no such delivery of this webhook, or not any more.")
        return _delivery_document(delivery)


def _no_webhook() -> Exception:
    return refusal(ProblemCode.NOT_FOUND, "There is no such webhook.")


def _document(webhook: WebhookRecord, counts: Mapping[tuple[str, DeliveryState], int]) -> WebhookDocument:
    return WebhookDocument(
        webhook_id=webhook.webhook_id,
        url=webhook.url,
        kinds=webhook.kinds,
        description=webhook.description,
        created_at=webhook.created_at,
        created_by=webhook.created_by,
        pending=counts.get((webhook.webhook_id, DeliveryState.PENDING), 0),
        dead=counts.get((webhook.webhook_id, DeliveryState.DEAD), 0),
    )


def _delivery_document(delivery: Delivery) -> DeliveryDocument:
    return DeliveryDocument(
        number=delivery.number,
        event=delivery.event.number,
        kind=delivery.event.kind,
        lease_id=delivery.event.lease_id,
        state=delivery.state,
        attempts=delivery.attempts,
        next_at=delivery.next_at if delivery.state is DeliveryState.PENDING else None,
        status=delivery.status,
        error=delivery.error,
    )
