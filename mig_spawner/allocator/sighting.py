"""What the pods that are seen change for the leases. What was seen is kept in the store, so that decisions need no watch at hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.pods.base import PodListing, PodSighting
from mig_spawner.allocator.recovery import take_up
from mig_spawner.allocator.service import Desk, settle
from mig_spawner.allocator.store.base import Pod
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import Active, EndReason, PodFate, Ready

WHO = "pod watch"
SEEN_EVERY: Final = timedelta(seconds=15)
"""How old `seen_at` of a lease may get before the sight of its pod is written again."""


def see_pods(desk: Desk, listing: PodListing) -> None:
    """Take in what Kubernetes shows: pods that came take their leases, pods that went give them back."""
    with desk.writing(WHO) as ledger:
        begun_at = ledger.now - listing.age
        known = dict(ledger.facts.pods)
        seen = {pod.uid: pod for pod in listing.pods}
        for sighting in listing.pods:
            _remember(ledger, sighting, known.get(sighting.uid))
        # Another replica may have seen a pod that this listing is too old to hold.
        gone = [p for p in known.values() if p.uid not in seen and (p.since < begun_at or p.uid in listing.gone)]
        for pod in gone:
            ledger.tx.drop_pod(pod.uid)
        listed_at = ledger.tx.pods_listed_at()
        if listed_at is None or listed_at < begun_at:
            ledger.tx.put_pods_listed_at(begun_at)
        ledger.forget()
        for lease_id in {pod.lease_id for pod in listing.pods}:
            _take(ledger, lease_id)
        for lease_id in {pod.lease_id for pod in gone}:
            _give_back(ledger, lease_id)
        take_up(ledger, {pod.uid: pod.unclear for pod in listing.pods if pod.claim is None})
        settle(ledger)


def begin_watch(desk: Desk) -> None:
    """The allocator starts to watch. Until the first list, what the ledger knows may be long out of date, or lost."""
    with desk.writing(WHO) as ledger:
        ledger.tx.put_pods_listed_at(None)
        settle(ledger)


def forget_pods(desk: Desk) -> None:
    """No pods are watched (any more): what was seen of them is worth nothing."""
    with desk.writing(WHO) as ledger:
        for pod in list(ledger.pods):
            ledger.tx.drop_pod(pod.uid)
        if ledger.tx.pods_listed_at() is not None:
            ledger.tx.put_pods_listed_at(None)


def _remember(ledger: Ledger, sighting: PodSighting, known: Pod | None) -> None:
    pod = Pod(
        uid=sighting.uid,
        lease_id=sighting.lease_id,
        namespace=sighting.namespace,
        name=sighting.name,
        phase=sighting.phase,
        device_uuid=sighting.device_uuid,
        since=ledger.now if known is None else known.since,
        placement=None if known is None else known.placement,
        claim=sighting.claim,
        trouble="" if known is None else known.trouble,
    )
    if pod != known:
        ledger.tx.put_pod(pod)


def _take(ledger: Ledger, lease_id: str) -> None:
    lease = ledger.holding.get(lease_id)
    if isinstance(lease, Ready):
        ledger.move(lease, transition.activate(lease, ledger.now), "its pod is there")
    elif isinstance(lease, Active) and ledger.now - lease.seen_at >= SEEN_EVERY:
        ledger.tx.touch(transition.activate(lease, ledger.now))


def _give_back(ledger: Ledger, lease_id: str) -> None:
    lease = ledger.holding.get(lease_id)
    if isinstance(lease, Active) and ledger.pod_of(lease_id) is None:
        gone = transition.release(lease, EndReason.POD_GONE, PodFate.GONE, ledger.now)
        ledger.move(lease, gone, "its pod is gone")
