"""Keeping a lease for longer: until when the rules allow it, and what is against more.

The rules are those of asking for it anew: the menu's entry and whom it is for, and the person's GPU-hours. And nothing is extended
that others have to have back: on a node that an admin empties, or a GPU that is emptied for somebody who has waited for very long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.menu.admission import entry_held
from mig_spawner.allocator.page.words import span
from mig_spawner.allocator.quota.text import standing_text
from mig_spawner.allocator.quota.use import Use
from mig_spawner.allocator.refusal import refusal
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import Active, Closed, Granted, Held, Lease, Queued, Ready, Releasing
from mig_spawner.domain.quota import quotas_of
from mig_spawner.errors import AllocatorRefused
from mig_spawner.wire.problem import ProblemCode

_MINUTE: Final = timedelta(minutes=1)
_FOR_EVER_H: Final = 1e6


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a lease can be extended by one rule: `until` then, and no longer because of `why`, a sentence."""

    until: datetime
    why: str
    code: ProblemCode


def bound_of(ledger: Ledger, lease: Held, ends: datetime) -> Bound | None:
    """The narrowest bound of a lease that ends then; None where nothing is against any extension."""
    return min(_bounds(ledger, lease, ends), key=lambda bound: bound.until, default=None)


def extendable(lease: Lease) -> tuple[Held, datetime]:
    """A lease that can be extended at all, and when it ends.

    Raises:
        AllocatorRefused: it holds nothing, or has no end.
    """
    match lease:
        case Queued():
            raise refusal(ProblemCode.CONFLICT, "This lease waits. Change for how long it is wanted.")
        case Releasing() | Closed():
            raise refusal(ProblemCode.CONFLICT, "This lease has ended: it cannot be extended. Ask for a new one.")
        case Granted() | Ready() | Active():
            ends = lease.grant.expires_at
            if ends is None:
                raise refusal(ProblemCode.CONFLICT, "This lease has no end: there is nothing to extend.")
            return lease, ends


def extend(ledger: Ledger, lease: Lease, duration: timedelta) -> Lease:
    """The lease after it; the same one if it may be kept for so long already.

    Raises:
        AllocatorRefused: it has nothing to extend, or may not be extended so far.
    """
    held, ends = extendable(lease)
    until = held.grant.granted_at + duration
    if until <= ends:
        return lease
    bound = bound_of(ledger, held, ends)
    if bound is not None and until > bound.until:
        raise refusal(bound.code, refusal_text(ledger, bound, ends))
    return ledger.move(held, transition.extend(held, until), f"extended by {span((until - ends).total_seconds())}")


def refusal_text(ledger: Ledger, bound: Bound, ends: datetime) -> str:
    """Why it cannot be extended any more, or not so far."""
    if bound.until - ends < _MINUTE:
        return f"{bound.why} It cannot be extended."
    return f"{bound.why} It can be extended until {ledger.menu.clock(bound.until):%Y-%m-%d %H:%M %Z}."


def _bounds(ledger: Ledger, lease: Held, ends: datetime) -> Iterator[Bound]:
    grant = lease.grant
    node = ledger.nodes.get(grant.node)
    if node is not None and node.cordoned:
        yield Bound(ends, f"An admin has cordoned node {grant.node}.", ProblemCode.CONFLICT)
    if grant.placement.gpu_uuid in ledger.tx.earmarks():
        yield Bound(ends, "Its GPU is being emptied for somebody who has waited for long.", ProblemCode.CONFLICT)
    try:
        entry = entry_held(ledger.menu, lease, ledger.now)
    except AllocatorRefused as error:
        yield Bound(ends, str(error), ProblemCode(error.code))
    else:
        longest = None if entry is None else entry.max_duration or entry.duration
        if entry is not None and longest is not None:
            contact = f" For more ask {ledger.menu.contact}." if ledger.menu.contact else ""
            why = f"{entry.display_name} ({entry.id}) may be kept for {span(longest)} in all.{contact}"
            yield Bound(max(grant.granted_at + timedelta(seconds=longest), ends), why, ProblemCode.NOT_OFFERED)
    yield from _of_quotas(ledger, lease, ends)


def _of_quotas(ledger: Ledger, lease: Held, ends: datetime) -> Iterator[Bound]:
    """What is left of GPU-hours, if this lease alone used it from now on."""
    use = Use(ledger)
    for quota in quotas_of(ledger.menu.quotas, lease.person):
        if quota.rule.window is not None:
            standing = use.standing(quota)
            until = ledger.now + timedelta(hours=min(standing.left / lease.grant.share, _FOR_EVER_H))
            yield Bound(max(until, ends), f"{standing_text(standing)}.", ProblemCode.QUOTA)
