"""Who in the queue is served next.

The rule: in the order of arrival, and nobody is passed by somebody who could take what he waits for. When a request cannot be
placed, everything that could ever serve it is set aside for it: a GPU that its agent may cut, as a whole; of a GPU with fixed
partitions, the partitions of fitting profiles. Those who come later are placed on what is left. So a small request
passes a large one only where the large one could never sit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.quota.check import over_quota, within_quota
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import Decision, Device, GPUState, profiles_for
from mig_spawner.domain.lease import Queued
from mig_spawner.domain.policy import choose
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, Request, WholeRequest
from mig_spawner.errors import SliceTaken

log = logging.getLogger(__name__)


def place_queue(ledger: Ledger) -> None:
    """Grant as much as the rule allows now."""
    while (found := _next(ledger)) is not None:
        _grant(ledger, *found)


def _next(ledger: Ledger) -> tuple[Queued, Decision, int] | None:
    fleet: Sequence[GPUState] = ledger.fleet
    with closing(ledger.tx.queue()) as queue:
        for lease in within_quota(ledger, queue):
            if not any(_has_room(state) for state in fleet):
                return None
            within_reach = [state for state in fleet if state.gpu.gpu_uuid not in lease.avoid]
            for number, request in enumerate(lease.choices):
                decision = choose(request, within_reach, ledger.ranking)
                if decision is not None and not over_quota(ledger, lease, decision):
                    return lease, decision, number
            if lease.lease_id not in ledger.passed_over:
                fleet = set_aside(fleet, lease)
    return None


def left_over(ledger: Ledger) -> list[GPUState]:
    """What somebody who came now could be placed on: all that is not set aside for those who wait."""
    fleet = list(ledger.fleet)
    with closing(ledger.tx.queue()) as queue:
        for lease in within_quota(ledger, queue):
            if not any(_has_room(state) for state in fleet):
                break
            fleet = set_aside(fleet, lease)
    return fleet


def set_aside(fleet: Sequence[GPUState], lease: Queued) -> list[GPUState]:
    """The GPUs without what could ever serve this lease."""
    for request in lease.choices:
        fleet = _without(fleet, request, lease.avoid)
    return list(fleet)


def _without(fleet: Sequence[GPUState], request: Request, avoid: frozenset[str]) -> Sequence[GPUState]:
    if isinstance(request, DeviceRequest):
        return [
            replace(state, devices=tuple(d for d in state.devices if d.device_uuid != request.mig_uuid))
            if state.devices
            else state
            for state in fleet
        ]
    names = set(profiles_for(request, fleet))
    return [
        state if state.gpu.gpu_uuid in avoid else replace(state, devices=_other_devices(state, names))
        for state in fleet
        if state.gpu.gpu_uuid in avoid or not _could_be_cut_for(state, request, names)
    ]


def _could_be_cut_for(state: GPUState, request: Request, names: set[ProfileName]) -> bool:
    if isinstance(request, WholeRequest):
        return state.can_be_whole
    return state.cuttable_when_empty and any(profile.name in names for profile in state.gpu.profiles)


def _other_devices(state: GPUState, names: set[ProfileName]) -> tuple[Device, ...]:
    return tuple(device for device in state.devices if device.profile.name not in names)


def _has_room(state: GPUState) -> bool:
    """Whether anything at all could be granted here now; a quick way to stop."""
    if state.unavailable is not None:
        return False
    return (
        any(d.idle for d in state.devices)
        or state.whole_free
        or (state.cuttable and state.layout.taken < state.gpu.grid)
    )


def _grant(ledger: Ledger, lease: Queued, decision: Decision, choice: int) -> None:
    now = ledger.now
    expires_at = None if lease.duration_s is None else now + timedelta(seconds=lease.duration_s)
    granted = transition.grant(lease, decision, ledger.tx.next_generation(), now, expires_at, choice)
    place = decision.placement
    what = "the whole GPU" if decision.profile is None else str(decision.profile.name)
    try:
        ledger.move(lease, granted, f"{what} at {place.start}:{place.size} of {place.gpu_uuid} on {decision.node}")
    except SliceTaken:
        # A report contradicts the ledger (a grid that shrank, say). The key has prevented the worst; leave that GPU alone.
        log.exception("Lease %s could not be placed as planned", lease.lease_id)
        ledger.exclude(place.gpu_uuid)
        return
    if decision.device_uuid is not None:
        ledger.move(granted, transition.make_ready(granted, decision.device_uuid, now), "the device stands already")


def forgive(ledger: Ledger) -> None:
    """Try GPUs again on which a grant failed, for those whom no other GPU could serve; after a while, not in a loop."""
    for lease in ledger.tx.avoiding():
        others = [state for state in ledger.fleet if state.gpu.gpu_uuid not in lease.avoid]
        if any(_can_serve(others, request) for request in lease.choices):
            continue
        since = ledger.tx.requeued_at(lease.lease_id) or lease.queued_at
        if ledger.now - since >= ledger.setting.retry_after:
            ledger.move(
                lease, replace(lease, avoid=frozenset()), "no other GPU can serve it: the failed ones are tried again"
            )


def _can_serve(fleet: Sequence[GPUState], request: Request) -> bool:
    if isinstance(request, WholeRequest):
        return any(state.can_be_whole for state in fleet)
    names = profiles_for(request, fleet)
    return any(state.total(name) for state in fleet for name in names)
