"""Changing a lease that waits: what it asks for, for how long, and whether its holder stands by. Its place in line stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.menu.admission import admit, asker
from mig_spawner.allocator.naming import as_reported
from mig_spawner.allocator.quota.check import refuse_over_quota
from mig_spawner.allocator.refusal import refusal
from mig_spawner.allocator.service import claim, refuse_impossible, served
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import Granted, Lease, Queued, Ready
from mig_spawner.wire.lease import ChoiceDocument, HolderDocument, LeaseRequest, ways_of
from mig_spawner.wire.problem import ProblemCode
from mig_spawner.wire.queue import LeaseChange

_PRESENCE = {"unattended"}


def change(ledger: Ledger, lease: Lease, wanted: LeaseChange) -> Lease:
    """The lease after the change; the same one if nothing changes.

    Raises:
        AllocatorRefused: it does not wait any more, or what is wanted can never be had, or not by this person.
    """
    if not isinstance(lease, (Queued, Granted, Ready)):
        raise refusal(
            ProblemCode.CONFLICT, "This lease has been taken or has ended: there is nothing to change any more."
        )
    if wanted.model_fields_set - _PRESENCE:
        if not isinstance(lease, Queued):
            raise refusal(
                ProblemCode.CONFLICT,
                f"This lease has been granted {lease.request}. Release it and ask for something else.",
            )
        lease = _changed(ledger, lease, as_reported(ledger, wanted))
    if wanted.unattended is None or wanted.unattended is lease.unattended:
        return lease
    if wanted.unattended:
        return ledger.move(lease, transition.leave(lease), "its holder has left, and will come back")
    return claim(ledger, lease)


def _changed(ledger: Ledger, lease: Queued, wanted: LeaseChange) -> Queued:
    request = _as_request(lease, wanted)
    admission = admit(ledger.menu, request, served(ledger, request), ledger.now)
    refuse_impossible(ledger, request, admission)
    refuse_over_quota(ledger, asker(request), admission.choices, without=lease.lease_id)
    wait_until = lease.wait_until
    if wanted.says("wait_budget"):
        budget = wanted.wait_budget
        wait_until = None if budget is None else ledger.now + timedelta(seconds=budget)
    after = replace(
        lease,
        request=admission.request,
        alternatives=admission.alternatives,
        choice=admission.choice,
        duration_s=admission.duration_s,
        wait_until=wait_until,
        priority=request.priority,
    )
    if after.choices != lease.choices:
        after = replace(after, earmark=None)
    if after == lease:
        return lease
    choices = ", else ".join(map(str, after.choices))
    return ledger.move(lease, after, f"changed: it asks for {choices}, priority {after.priority}")


def _as_request(lease: Queued, wanted: LeaseChange) -> LeaseRequest:
    """What the holder would ask for now, had it not come before."""
    main: dict[str, Any] = {**ways_of(lease.request), "choice": lease.choice}
    if wanted.names_something or wanted.choice:
        main = {**(ways_of(wanted.to_domain()) if wanted.names_something else {}), "choice": wanted.choice}
    alternatives = wanted.alternatives
    if alternatives is None:
        alternatives = tuple(ChoiceDocument.of(choice) for choice in lease.alternatives)
    holder = lease.holder
    return LeaseRequest(
        holder=HolderDocument(user_id=holder.user_id, server_name=holder.server_name, user_name=holder.user_name),
        alternatives=alternatives,
        duration=wanted.duration if wanted.says("duration") else lease.duration_s,
        priority=lease.priority if wanted.priority is None else wanted.priority,
        groups=tuple(sorted(lease.groups)),
        **main,
    )
