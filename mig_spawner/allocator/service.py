"""What holders may do with leases: one transaction per use case.

Every method blocks; handlers run them in a thread. Each ends with the same steps as every other change of the ledger: close what
may be closed, serve the queue, write what the nodes should look like.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mig_spawner.allocator.bound import keep_bound
from mig_spawner.allocator.desire import refresh_desired
from mig_spawner.allocator.document import availability, lease_document
from mig_spawner.allocator.ending import close_ended, waits_for
from mig_spawner.allocator.event.news import announce
from mig_spawner.allocator.extension import extend
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.menu.admission import Admission, admit, asker, asks_for_the_same
from mig_spawner.allocator.naming import as_reported
from mig_spawner.allocator.paging import Arrival, lease_cursor, moment
from mig_spawner.allocator.pick import learn
from mig_spawner.allocator.queue.forecasts import Forecasts
from mig_spawner.allocator.queue.serve import serve_queue
from mig_spawner.allocator.quota.check import refuse_over_quota
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import Store
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import GPUState, impossible
from mig_spawner.domain.lease import (
    Active,
    Closed,
    EndReason,
    Granted,
    Lease,
    Pick,
    PodFate,
    Queued,
    Ready,
    Releasing,
)
from mig_spawner.domain.queue import Memory
from mig_spawner.wire.availability import Availability
from mig_spawner.wire.lease import LeaseDocument, LeaseList, LeaseRelease, LeaseRequest
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.problem import ProblemCode

Steps = list[tuple[Lease, Lease]]


def settle(ledger: Ledger) -> None:
    """The steps that follow every change. They change nothing when nothing is to be done."""
    close_ended(ledger)
    keep_bound(ledger)
    serve_queue(ledger)
    refresh_desired(ledger)


@dataclass(frozen=True)
class Desk:
    """Opens transactions as ledgers and tells `after` what each has moved, once it is on disk."""

    store: Store
    setting: Setting
    after: Callable[[Steps], None]
    menu: Callable[[], Menu] = Menu
    memory: Memory = field(default_factory=Memory)
    forecasts: Forecasts = field(default_factory=Forecasts)

    @contextmanager
    def writing(self, who: str) -> Iterator[Ledger]:
        with self.store.writing() as tx:
            ledger = Ledger(tx, self.setting, who, self.menu(), memory=self.memory, forecasts=self.forecasts)
            yield ledger
            announce(ledger)
        self.after(ledger.steps)

    @contextmanager
    def reading(self, *, view: bool = True) -> Iterator[Ledger]:
        """One look at the ledger.

        Args:
            view: at the fleet, or all leases: with the view that is kept for those who read, one at a time. Who looks at a few rows
                only does without it, and waits for nobody.
        """
        with self.store.reading(view=view) as tx:
            yield Ledger(
                tx,
                self.setting,
                "",
                self.menu(),
                memory=self.memory,
                forecasts=self.forecasts,
                reads_only=True,
            )


@dataclass(frozen=True)
class Seen:
    """A lease as it was read at a revision of the ledger."""

    document: LeaseDocument
    revision: int


class LeaseService:
    """Acquire, read, renew and release. `who` is for the audit.

    Every method may raise `AllocatorRefused` with a code of `ProblemCode`, and `StoreUnavailable`.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def availability(self, without: str = "") -> Availability:
        """What is free now; with the id of a lease, as if it did not wait."""
        with self._desk.reading() as ledger:
            return availability(ledger, without)

    def acquire(self, request: LeaseRequest, *, who: str) -> Seen:
        """The holder's lease: the open one if it asks for the same, else a new one, granted at once if the queue lets it."""
        holder = request.holder.to_domain()
        with self._desk.writing(who) as ledger:
            request = as_reported(ledger, request)
            existing = ledger.tx.open_lease(*holder.key)
            if existing is not None:
                _same_or_conflict(ledger, existing, request)
                return seen(ledger, existing if request.unattended else claim(ledger, existing))
            admission = admit(ledger.menu, request, served(ledger, request), ledger.now)
            refuse_impossible(ledger, request, admission)
            refuse_over_quota(ledger, asker(request), admission.choices)
            if ledger.tx.queue_length() >= ledger.setting.queue_limit:
                raise refusal(ProblemCode.QUEUE_FULL, "Too many wait already. Try again later.")
            lease = _arrival(request, admission, ledger)
            ledger.tx.add(lease, who=who, why=f"{str(holder).removesuffix('/')} asks for {admission.request}")
            settle(ledger)
            found = stored(ledger, lease.lease_id)
            if isinstance(found, Queued) and request.wait_budget == 0:
                why = "nothing is free now and it is not ready to wait"
                found = ledger.move(found, transition.cancel(found, EndReason.WAIT_OVER, ledger.now), why)
            return seen(ledger, found)

    def lease(self, lease_id: str) -> Seen:
        with self._desk.reading(view=False) as ledger:
            lease = stored(ledger, lease_id)
            if not _looks_around(ledger, lease):
                return seen(ledger, lease)
        with self._desk.reading() as ledger:
            return seen(ledger, stored(ledger, lease_id))

    def leases(
        self,
        *,
        user_id: str | None = None,
        server_name: str | None = None,
        user_name: str | None = None,
        after: Arrival | None = None,
        limit: int | None = None,
    ) -> LeaseList:
        """Open leases, oldest first: all, or those that match; those after an arrival, at most so many."""
        with self._desk.reading() as ledger:
            found = ledger.tx.open_leases(
                user_id=user_id,
                server_name=server_name,
                user_name=user_name,
                after=None if after is None else moment(after),
                limit=None if limit is None else limit + 1,
            )
            shown = found[:limit]
            documents = tuple(lease_document(ledger, lease) for lease in shown)
            return LeaseList(leases=documents, next=lease_cursor(shown[-1]) if len(found) > len(shown) else None)

    def renew(self, lease_id: str, *, who: str) -> LeaseDocument:
        """Ready becomes Active; an Active one is seen."""
        with self._desk.writing(who) as ledger:
            match stored(ledger, lease_id):
                case Ready() as lease:
                    active = ledger.move(lease, transition.activate(lease, ledger.now), "its holder has taken it")
                    return lease_document(ledger, active)
                case Active() as lease:
                    active = transition.activate(lease, ledger.now)
                    ledger.tx.touch(active)
                    return lease_document(ledger, active)
                case Queued() | Granted():
                    raise refusal(ProblemCode.CONFLICT, "There is nothing to take yet: the slice is not ready.")
                case Releasing() | Closed() as lease:
                    detail = lease_document(ledger, lease).detail
                    raise refusal(ProblemCode.CONFLICT, f"This lease has ended. {detail}")

    def extend(self, lease_id: str, duration: timedelta, *, who: str) -> LeaseDocument:
        """Keep a lease for so long in all. Doing it twice does no harm, and it is never shortened."""
        with self._desk.writing(who) as ledger:
            return lease_document(ledger, extend(ledger, stored(ledger, lease_id), duration))

    def learn(self, lease_id: str, device_uuid: str, *, who: str) -> LeaseDocument:
        """The node picked this device for a lease: from now on that is the one it has."""
        with self._desk.writing(who) as ledger:
            match stored(ledger, lease_id):
                case Ready() | Active() as lease:
                    learned = learn(ledger, lease, device_uuid)
                    settle(ledger)
                    return lease_document(ledger, learned)
                case Queued() | Granted():
                    raise refusal(
                        ProblemCode.CONFLICT, "Nobody can have given it a device yet: its slice is not ready."
                    )
                case Releasing() | Closed() as lease:
                    detail = lease_document(ledger, lease).detail
                    raise refusal(ProblemCode.CONFLICT, f"This lease has ended. {detail}")

    def release(self, lease_id: str, release: LeaseRelease, *, who: str) -> LeaseDocument:
        """Give a lease back, or learn what one that was given back still waits for."""
        with self._desk.writing(who) as ledger:
            lease = stored(ledger, lease_id)
            _give_back(ledger, lease, release)
            settle(ledger)
            return lease_document(ledger, stored(ledger, lease_id))

    def release_holder(self, user_id: str, server_name: str, release: LeaseRelease, *, who: str) -> LeaseList:
        """Give back what a holder has; an empty list when it has nothing."""
        with self._desk.writing(who) as ledger:
            lease = ledger.tx.open_lease(user_id, server_name)
            if lease is None:
                return LeaseList(leases=())
            _give_back(ledger, lease, release)
            settle(ledger)
            return LeaseList(leases=(lease_document(ledger, stored(ledger, lease.lease_id)),))


def _looks_around(ledger: Ledger, lease: Lease) -> bool:
    """Whether it takes more than its own row to say how a lease is. Many wait and ask again and again."""
    match lease:
        case Queued():
            due = ledger.forecasts is not None and ledger.forecasts.is_due(ledger)
            return due or bool(ledger.menu.quotas) or bool(lease.avoid)
        case Releasing():
            return True
        case Granted() | Ready() | Active() | Closed():
            return False


def seen(ledger: Ledger, lease: Lease) -> Seen:
    """A lease for those who watch it."""
    return Seen(lease_document(ledger, lease), ledger.tx.revision)


def stored(ledger: Ledger, lease_id: str) -> Lease:
    """A lease by its id, or the refusal that there is none."""
    lease = ledger.lease(lease_id)
    if lease is None:
        raise refusal(ProblemCode.NOT_FOUND, "There is no such lease.")
    return lease


def _arrival(request: LeaseRequest, admission: Admission, ledger: Ledger) -> Queued:
    wait = request.wait_budget
    return Queued(
        lease_id=secrets.token_hex(8),
        holder=request.holder.to_domain(),
        request=admission.request,
        queued_at=ledger.now,
        wait_until=None if wait is None else ledger.now + timedelta(seconds=wait),
        duration_s=admission.duration_s,
        alternatives=admission.alternatives,
        priority=request.priority,
        groups=frozenset(request.groups),
        unattended=request.unattended,
        pick=Pick.NODE if request.picked_by_node else Pick.LEDGER,
        choice=admission.choice,
        node=request.node,
        avoid=frozenset(state.gpu.gpu_uuid for node in set(request.avoid_nodes) for state in ledger.gpus_of(node)),
    )


def claim(ledger: Ledger, lease: Lease) -> Lease:
    """Its holder is back: what is ready need not be claimed any more. Whoever never left is left alone."""
    if lease.unattended and isinstance(lease, (Queued, Granted, Ready)):
        return ledger.move(lease, transition.claim(lease, ledger.now), "its holder is back")
    return lease


def refuse_impossible(ledger: Ledger, request: LeaseRequest, admission: Admission) -> None:
    """Nobody waits for what can never come: some choice has to be possible."""
    if request.node is not None:
        fleet = [] if request.node in request.avoid_nodes else ledger.gpus_of(request.node)
    elif request.avoid_nodes:
        fleet = [state for state in ledger.fleet if state.node not in request.avoid_nodes]
    else:
        fleet = ledger.serving(admission.choices)
    if request.node is not None and not ledger.gpus_of(request.node):
        raise refusal(
            ProblemCode.IMPOSSIBLE,
            f"No GPU of a node {request.node} is known here. Say its name as its agent reports it, or start its agent.",
        )
    reasons = [impossible(choice, fleet) for choice in admission.choices]
    if None not in reasons:
        raise refusal(ProblemCode.IMPOSSIBLE, reasons[0] or "")


def served(ledger: Ledger, request: LeaseRequest) -> list[GPUState]:
    """What a menu has to know of the GPUs to understand a request."""
    return ledger.serving((request.to_domain(), *request.alternatives_to_domain()))


def _same_or_conflict(ledger: Ledger, existing: Lease, request: LeaseRequest) -> None:
    if isinstance(existing, Releasing):
        detail = "; ".join(waits_for(ledger, existing)) or "a moment"
        raise refusal(
            ProblemCode.CONFLICT,
            f"Your previous slice is still being released; it waits: {detail}. Try again in a moment.",
        )
    if not asks_for_the_same(ledger.menu, request, existing) or existing.node != request.node:
        verb = "waits for" if isinstance(existing, Queued) else "has"
        raise refusal(
            ProblemCode.CONFLICT,
            f"This server already {verb} {existing.request}. Stop it before you ask for {request.choice or request.to_domain()}.",
        )


def _give_back(ledger: Ledger, lease: Lease, release: LeaseRelease) -> None:
    pod = f", pod {release.pod_name}" if release.pod_name else ""
    said = f". {release.message}" if release.message else ""
    why = f"{release.reason}, its pod is {release.pod}{pod}{said}"
    match lease:
        case Queued():
            ledger.move(lease, transition.cancel(lease, release.reason, ledger.now, release.message), why)
        case Granted() | Ready() | Active():
            after = transition.release(lease, release.reason, release.pod, ledger.now, release.message)
            ledger.move(lease, after, why)
        case Releasing():
            if release.reason is EndReason.FORCED and release.pod is PodFate.GONE:
                forced = replace(lease, reason=EndReason.FORCED, message=release.message or lease.message)
                ledger.move(lease, transition.close(forced, ledger.now), "an admin vouches that its pod is gone")
                return
            # The watch may see a pod go before its hub says why it went.
            reason = release.reason if lease.reason is EndReason.POD_GONE else lease.reason
            pod_fate = release.pod if release.pod is PodFate.GONE and lease.pod is PodFate.UNKNOWN else lease.pod
            if (reason, pod_fate) != (lease.reason, lease.pod):
                ledger.move(lease, replace(lease, reason=reason, pod=pod_fate), why)
        case Closed():
            pass
