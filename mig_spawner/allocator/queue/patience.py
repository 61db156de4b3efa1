"""What waiting alone changes: GPUs that were avoided are forgiven, and who waits for too long has a GPU earmarked."""

from __future__ import annotations

from dataclasses import replace

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.queue.board import Outlooks
from mig_spawner.allocator.quota.check import waits_for_quota, within_quota
from mig_spawner.allocator.quota.use import Use
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.queue import Outlook, could_serve, earmark_heads


def forgive(ledger: Ledger) -> None:
    """Try GPUs again on which a grant failed, for those whom no other GPU will serve as things stand; after a while, not in a loop."""
    due = [lease for lease in ledger.tx.avoiding() if _may_try_again(ledger, lease)]
    outlooks = Outlooks(ledger).values() if due else []
    for lease in due:
        others = (outlook for outlook in outlooks if outlook.state.gpu.gpu_uuid not in lease.avoid)
        if all(outlook.earliest(lease.choices) is None for outlook in others):
            ledger.move(
                lease, replace(lease, avoid=frozenset()), "no other GPU can serve it: the failed ones are tried again"
            )


def _may_try_again(ledger: Ledger, lease: Queued) -> bool:
    since = ledger.tx.requeued_at(lease.lease_id) or lease.queued_at
    return ledger.now - since >= ledger.setting.retry_after


def earmark(ledger: Ledger) -> None:
    """Keep one GPU for each head that has waited too long: nothing new is placed there, so it will become free.

    A head is whoever waits and competes with nobody who has a GPU earmarked already. A GPU on which nothing can be granted now
    is given up for another.
    """
    earmarks = ledger.tx.earmarks()
    if earmarks:
        _give_up(ledger, earmarks)
    starvation_after = ledger.setting.starvation_after
    if starvation_after is None:
        return
    starved = list(within_quota(ledger, ledger.tx.waiting_since(ledger.now - starvation_after)))
    if not starved:
        return
    states = {state.gpu.gpu_uuid: state for state in ledger.fleet}
    for lease, gpu_uuid in earmark_heads(starved, ledger.tx.earmarks(), states, lambda lease: _seen_by(ledger, lease)):
        waited = (ledger.now - lease.queued_at).total_seconds()
        why = f"it has waited for {waited:.0f} s: {gpu_uuid} is kept for it, nothing new is placed there"
        ledger.move(lease, replace(lease, earmark=gpu_uuid), why)


def _seen_by(ledger: Ledger, lease: Queued) -> list[Outlook]:
    return [outlook.seen_by(ledger.setting.keep_apart, lease.groups) for outlook in Outlooks(ledger).values()]


def _give_up(ledger: Ledger, earmarks: dict[str, str]) -> None:
    states = {state.gpu.gpu_uuid: state for state in ledger.fleet}
    for gpu_uuid, lease_id in earmarks.items():
        lease = ledger.tx.lease(lease_id)
        if not isinstance(lease, Queued):
            continue
        if not _is_good(states.get(gpu_uuid), lease) or waits_for_quota(Use(ledger, waiting=False), lease):
            ledger.move(lease, replace(lease, earmark=None), f"{gpu_uuid} cannot serve it any more")


def _is_good(state: GPUState | None, lease: Queued) -> bool:
    if state is None or state.unavailable is not None or state.gpu.gpu_uuid in lease.avoid:
        return False
    return could_serve(state, lease.choices)
