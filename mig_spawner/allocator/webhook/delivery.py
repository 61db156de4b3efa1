"""Sending what was written: claim what is due, send it, write down what became of it.

A delivery arrives at least once: whoever sends may be killed before it has written that it did. Receivers tell doubles by
`webhook-id`. Two replicas claim different ones. What fails is tried again with growing pauses for about a day, and is then dead, for
an admin to look at.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import httpx

from mig_spawner._version import __version__
from mig_spawner.allocator.changes import Run
from mig_spawner.allocator.event.feed import Told
from mig_spawner.allocator.store.base import Store
from mig_spawner.allocator.store.post import Delivery, WebhookRecord
from mig_spawner.allocator.webhook.address import origin_of
from mig_spawner.allocator.webhook.signature import signed
from mig_spawner.wire.webhook import DeliveryState, WebhookPayload

log = logging.getLogger(__name__)

AT_ONCE: Final = 32
TIMEOUT_S: Final = 15.0
CLAIM: Final = timedelta(seconds=60)
"""For so long a claimed delivery is nobody else's; longer than an attempt takes."""
ATTEMPTS: Final = 10
FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 6 * 3600.0
GONE: Final = 410
"""The receiver wants nothing more: to try again would be rude."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    status: int | None
    error: str
    final: bool = False


class Postman:
    """Delivers. One for each process; any number of processes.

    Args:
        origins: where events may be sent; looked at again before each attempt.
        chance: from 0 to 1, for the jitter of pauses.
    """

    def __init__(
        self, store: Store, run: Run, origins: frozenset[str], *, chance: Callable[[], float] = random.random
    ) -> None:
        self._store = store
        self._run = run
        self._origins = origins
        self._chance = chance
        # It would log every address, which may have a secret of the receiver in it.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._http = httpx.AsyncClient(
            timeout=TIMEOUT_S,
            follow_redirects=False,
            trust_env=False,
            # Reading the certificates of the system takes a while, and most allocators send nothing.
            verify=any(origin.startswith("https:") for origin in origins),
            headers={"User-Agent": f"mig-spawner/{__version__}", "Content-Type": "application/json"},
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def step(self) -> None:
        """Deliver all that is due."""
        while claimed := await self._run(self._claim):
            now, webhooks, deliveries = claimed
            outcomes = await asyncio.gather(*(self._attempt(d, webhooks[d.webhook_id], now) for d in deliveries))
            await self._run(lambda: self._finish(list(zip(deliveries, outcomes, strict=True))))  # noqa: B023  # run at once
            if len(deliveries) < AT_ONCE:
                return

    def _claim(self) -> tuple[datetime, dict[str, WebhookRecord], list[Delivery]] | None:
        with self._store.reading() as tx:
            if not tx.is_delivery_due():
                return None
        with self._store.writing() as tx:
            deliveries = tx.claim_deliveries(AT_ONCE, tx.now + CLAIM)
            return (tx.now, {w.webhook_id: w for w in tx.webhooks()}, deliveries) if deliveries else None

    async def _attempt(self, delivery: Delivery, webhook: WebhookRecord, now: datetime) -> _Outcome:
        if origin_of(webhook.url) not in self._origins:
            return _Outcome(None, "Its address is not among AllocatorApp.webhook_origins any more.", final=True)
        event = Told.of(delivery.event).event
        payload = WebhookPayload(type=f"lease.{event.kind}", timestamp=event.at, data=event)
        body = payload.model_dump_json()
        message = f"{self._store.installation_id}-{event.number}"
        headers = signed(self._store.secret("webhook"), webhook.webhook_id, message, now, body)
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._http.stream("POST", webhook.url, content=body, headers=dict(headers)) as response,
            ):
                status = response.status_code
        except (httpx.HTTPError, TimeoutError) as error:
            # The text of the error may have the address in it, and with it a secret of the receiver.
            return _Outcome(None, f"No answer ({type(error).__name__}).")
        if 200 <= status < 300:
            return _Outcome(status, "")
        return _Outcome(status, f"The answer was {status}.", final=status == GONE)

    def _finish(self, results: list[tuple[Delivery, _Outcome]]) -> None:
        with self._store.writing() as tx:
            for delivery, outcome in results:
                state = _state(delivery, outcome)
                pause = timedelta(seconds=self._pause(delivery.attempts) if state is DeliveryState.PENDING else 0)
                tx.finish_delivery(delivery, state, next_at=tx.now + pause, status=outcome.status, error=outcome.error)
                if state is DeliveryState.DEAD:
                    log.warning(
                        "Event %d is given up for the webhook %s: %s",
                        delivery.event.number,
                        delivery.webhook_id,
                        outcome.error,
                    )

    def _pause(self, attempts: int) -> float:
        """Seconds after so many attempts before this one: 10, 40, 160 … and six hours at most, up to a fifth longer by chance."""
        return min(FIRST_PAUSE_S * 4.0**attempts, LONGEST_PAUSE_S) * (1 + self._chance() / 5)


def _state(delivery: Delivery, outcome: _Outcome) -> DeliveryState:
    if not outcome.error:
        return DeliveryState.DELIVERED
    return DeliveryState.DEAD if outcome.final or delivery.attempts + 1 >= ATTEMPTS else DeliveryState.PENDING
