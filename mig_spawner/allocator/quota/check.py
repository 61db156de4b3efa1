"""Whether a quota is against something, decided in the transaction that would grant it.

Asking is the rule: who would be over a quota with what they hold, wait for and ask for is told so at once, so nobody waits in vain.
Granting is the exception: quotas may have been lowered, or GPU-hours used up, since a lease began to wait. It is passed over then,
keeps its place, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.quota.text import refusal_text
from mig_spawner.allocator.quota.use import Use
from mig_spawner.allocator.refusal import refusal
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.held import against, decided_size
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.quota import quotas_of
from mig_spawner.domain.request import Request
from mig_spawner.domain.rule import Person
from mig_spawner.wire.problem import ProblemCode


def refuse_over_quota(ledger: Ledger, person: Person, choices: Iterable[Request], *, without: str = "") -> None:
    """Say no at once to what would only wait: every choice must be within every quota, beside what is held and waited for.

    Args:
        without: the id of a lease in the queue that is changed, so that it does not count against itself.

    Raises:
        AllocatorRefused: `quota`, with the tightest one in the sentence.
    """
    quotas = quotas_of(ledger.menu.quotas, person)
    if not quotas:
        return
    use = Use(ledger, without=without)
    for choice in choices:
        size = use.least(choice)
        standing = against(use.standing, quotas, size)
        if standing is not None:
            raise refusal(ProblemCode.QUOTA, refusal_text(standing, str(choice), size, ledger.menu.clock(ledger.now)))


def within_quota(ledger: Ledger, queue: Iterable[Queued]) -> Iterator[Queued]:
    """Those who may be served, in order: without those who have too much already for any of what they wait for.

    GPU-hours are looked at when there is something to grant, see `over_quota`: nobody's history is added up in vain.
    """
    if not ledger.menu.quotas:
        yield from queue
        return
    use = Use(ledger, waiting=False)
    for lease in queue:
        if lease.lease_id not in ledger.passed_over and not waits_for_quota(use, lease, hours=False):
            yield lease


def over_quota(ledger: Ledger, lease: Queued, decision: Decision) -> bool:
    """Whether a quota is against what could be granted now. Such a lease is passed over for the rest of this transaction."""
    quotas = quotas_of(ledger.menu.quotas, lease.person)
    over = bool(quotas) and against(Use(ledger, waiting=False).standing, quotas, decided_size(decision)) is not None
    if over:
        ledger.passed_over.add(lease.lease_id)
    return over


def waits_for_quota(use: Use, lease: Queued, *, hours: bool = True) -> str:
    """Why a lease that waits is passed over, if it is for a quota; empty if not.

    Args:
        hours: look at GPU-hours as well.
    """
    ledger = use.ledger
    quotas = [q for q in quotas_of(ledger.menu.quotas, lease.person) if hours or q.rule.window is None]
    if not quotas:
        return ""
    reasons: list[str] = []
    for choice in lease.choices:
        size = use.least(choice)
        standing = against(use.standing, quotas, size)
        if standing is None:
            return ""
        reasons.append(refusal_text(standing, str(choice), size, ledger.menu.clock(ledger.now)))
    return reasons[0]
