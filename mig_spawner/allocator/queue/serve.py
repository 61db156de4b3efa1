"""Serving the queue: one pass that decides, then the grants it has made, written."""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import timedelta

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.queue.board import line_of
from mig_spawner.allocator.quota.check import over_quota, within_quota
from mig_spawner.domain import lease as transition
from mig_spawner.domain.queue import Turn
from mig_spawner.errors import SliceTaken

log = logging.getLogger(__name__)


def serve_queue(ledger: Ledger) -> None:
    """Grant as much as the rules of the line allow now."""
    while ledger.tx.queue_length():
        with closing(ledger.tx.queue()) as queue:
            turns = list(line_of(ledger).serve(within_quota(ledger, queue)))
        if all(_grant(ledger, turn) for turn in turns):
            return


def _grant(ledger: Ledger, turn: Turn) -> bool:
    """Write a grant. False if that cannot be, so that the rest has to be thought over."""
    now, lease, decision = ledger.now, turn.lease, turn.decision
    if over_quota(ledger, lease, decision):
        return False  # with what was granted before it in this very pass
    expires_at = None if lease.duration_s is None else now + timedelta(seconds=lease.duration_s)
    granted = transition.grant(lease, decision, ledger.tx.next_generation(), now, expires_at, turn.choice)
    place = decision.placement
    what = "the whole GPU" if decision.profile is None else str(decision.profile.name)
    where = f"{place.start}:{place.size} of {place.gpu_uuid} on {decision.node}"
    try:
        ledger.move(lease, granted, f"{what} at {where}, the best place by {ledger.setting.policy}")
    except SliceTaken:
        # A report contradicts the ledger (a grid that shrank, say). The key has prevented the worst; leave that GPU alone.
        log.exception("Lease %s could not be placed as planned", lease.lease_id)
        ledger.exclude(place.gpu_uuid)
        return False
    if decision.device_uuid is not None:
        ledger.move(granted, transition.make_ready(granted, decision.device_uuid, now), "the device stands already")
    return True
