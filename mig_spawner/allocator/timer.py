"""What time alone changes: one step per rule, all run by `tick` in one transaction.

Every step looks at the ledger and at its clock and moves what is due. Running one twice, or on two replicas, does no harm.
"""

from __future__ import annotations

from datetime import timedelta

from mig_spawner.allocator.document import claim_until
from mig_spawner.allocator.event.news import warn
from mig_spawner.allocator.ledger import Ledger, processes_on
from mig_spawner.allocator.queue.patience import earmark, forgive
from mig_spawner.allocator.recovery import take_up
from mig_spawner.allocator.service import Desk, settle
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import Active, EndReason, Granted, PodFate, Ready

WHO = "timer"


def tick(desk: Desk) -> dict[str, bool]:
    """Every rule once, then what follows every change.

    Returns:
        Whether each node is silent now, by its name.
    """
    with desk.writing(WHO) as ledger:
        end_waits(ledger)
        retry_unmade(ledger)
        release_untaken(ledger)
        expire(ledger)
        release_lost(ledger)
        forgive(ledger)
        take_up(ledger)
        earmark(ledger)
        settle(ledger)
        warn(ledger)
        return {node.name: ledger.is_silent(node) for node in ledger.nodes.values()}


def take_turn(desk: Desk, every: timedelta) -> bool:
    """Whether it is this replica that should `tick` now: all of them together do it at most `every` so often."""
    with desk.writing(WHO) as ledger:
        return ledger.tx.take_turn(WHO, every)


def end_waits(ledger: Ledger) -> None:
    """Queued, and not ready to wait any longer."""
    for lease in ledger.tx.waits_over():
        ledger.move(lease, transition.cancel(lease, EndReason.WAIT_OVER, ledger.now), "its time in the queue is over")


def retry_unmade(ledger: Ledger) -> None:
    """Granted for so long that its device will not come: another GPU is tried."""
    timeout = ledger.setting.make_timeout
    for lease in list(ledger.holding.values()):
        if isinstance(lease, Granted) and ledger.now - lease.grant.granted_at >= timeout:
            why = f"{lease.grant.node} did not make its device within {timeout.total_seconds():.0f} s"
            ledger.move(lease, transition.requeue(lease), why)


def release_untaken(ledger: Ledger) -> None:
    """Ready, and nobody came. While the pods cannot be seen, somebody may have come, unless its holder has left."""
    for lease in list(ledger.holding.values()):
        if not isinstance(lease, Ready):
            continue
        until = claim_until(ledger, lease)
        if until is not None:
            if ledger.now >= until:
                # Nobody has claimed it, so nobody has made a pod for it.
                unclaimed = transition.release(lease, EndReason.NOT_TAKEN, PodFate.NONE, ledger.now)
                ledger.move(lease, unclaimed, "nobody claimed it within the claim window: it passes on to the next")
            continue
        due = max(lease.ready_at, lease.claimed_at or lease.ready_at) + ledger.setting.ready_timeout
        listed_at = ledger.tx.pods_listed_at()
        blind = ledger.setting.watches_pods and (listed_at is None or listed_at < due)
        if ledger.now >= due and not blind:
            untaken = transition.release(lease, EndReason.NOT_TAKEN, PodFate.UNKNOWN, ledger.now)
            ledger.move(lease, untaken, "nobody took it in time")


def expire(ledger: Ledger) -> None:
    """Kept for as long as was agreed."""
    for lease in list(ledger.holding.values()):
        if isinstance(lease, (Granted, Ready, Active)):
            expires_at = lease.grant.expires_at
            if expires_at is not None and ledger.now >= expires_at:
                expired = transition.release(lease, EndReason.EXPIRED, PodFate.UNKNOWN, ledger.now)
                ledger.move(lease, expired, "its time is over")


def release_lost(ledger: Ledger) -> None:
    """Active without heartbeat, pod or process. A hub may be down for hours: a pod or a process alone keeps the lease."""
    for lease in list(ledger.holding.values()):
        if not isinstance(lease, Active) or ledger.now - lease.seen_at < ledger.setting.heartbeat_timeout:
            continue
        if ledger.pod_of(lease.lease_id) is None and _is_known_idle(ledger, lease):
            lost = transition.release(lease, EndReason.HOLDER_LOST, PodFate.UNKNOWN, ledger.now)
            ledger.move(lease, lost, "no heartbeat, no pod and no process")


def _is_known_idle(ledger: Ledger, lease: Active) -> bool:
    node = ledger.nodes.get(lease.grant.node)
    if node is None or ledger.is_silent(node):
        return False
    gpu = ledger.reported_gpu(node.name, lease.grant.placement.gpu_uuid)
    return gpu is not None and processes_on(gpu, lease) == 0
