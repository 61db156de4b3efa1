"""The decision: of all that is legal on a fleet now, the one place for a request."""

from __future__ import annotations

from collections.abc import Sequence

from mig_spawner.domain.fleet import Decision, GPUState, profiles_for
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.policy.base import Ranking
from mig_spawner.domain.policy.table import Best, Table, table_of
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, Request, WholeRequest


def choose(request: Request, fleet: Sequence[GPUState], ranking: Ranking) -> Decision | None:
    """Where to serve a request now, or None if nothing legal is free.

    Standing devices go before new ones: they cost no cut and cannot fragment anything further. One look at each GPU; who keeps a
    fleet for long asks an `Index`, which answers the same.
    """
    if isinstance(request, WholeRequest):
        return _whole(fleet)
    if isinstance(request, DeviceRequest):
        found = (device_decision(state, request.mig_uuid) for state in fleet if state.devices)
        return next((decision for decision in found if decision is not None), None)
    for name in profiles_for(request, fleet):
        decision = _standing(name, fleet) or _cut(name, fleet, ranking)
        if decision is not None:
            return decision
    return None


def _whole(fleet: Sequence[GPUState]) -> Decision | None:
    levels = ((level, number) for number, state in enumerate(fleet) if (level := whole_level(state)) is not None)
    best = min(levels, default=None)
    return None if best is None else whole_decision(fleet[best[1]])


def _standing(name: ProfileName, fleet: Sequence[GPUState]) -> Decision | None:
    for state in fleet:
        if state.devices and state.unavailable is None:
            decision = standing_decision(state, name)
            if decision is not None:
                return decision
    return None


def _cut(name: ProfileName, fleet: Sequence[GPUState], ranking: Ranking) -> Decision | None:
    found: tuple[GPUState, Best] | None = None
    # Comparing the profiles of each GPU would cost more than all the rest; those of one model are often one object.
    tables: dict[int, Table] = {}
    for state in fleet:
        if state.unavailable is not None or not state.cuttable:
            continue
        kind = id(state.gpu.profiles)
        table = tables.get(kind)
        if table is None:
            table = tables[kind] = table_of(state.gpu, ranking)
        best = table.best(name, state.layout)
        if best is not None and (found is None or best.level < found[1].level):
            found = state, best
    return None if found is None else cut_decision(*found)


def whole_level(state: GPUState) -> int | None:
    """How a free GPU compares with others to be had whole; None if it cannot be had.

    A GPU that is uncut already needs no change of mode, and leaves the others to people who want a part.
    """
    return int(state.mig_enabled is True) if state.whole_free else None


def whole_decision(state: GPUState) -> Decision:
    """This GPU, whole."""
    ready = state.mig_enabled is not True
    return Decision(state.node, state.gpu, state.gpu.whole, None, state.gpu.gpu_uuid if ready else None, cut=not ready)


def standing_decision(state: GPUState, name: ProfileName) -> Decision | None:
    """The first idle device of this profile that stands on this GPU."""
    for device in state.devices:
        if device.idle and device.profile.name == name:
            return Decision(state.node, state.gpu, device.placement, device.profile, device.device_uuid, cut=False)
    return None


def device_decision(state: GPUState, mig_uuid: str) -> Decision | None:
    """The device of this name, if it stands on this GPU, idle."""
    if state.unavailable is None:
        for device in state.devices:
            if device.idle and device.device_uuid == mig_uuid:
                return Decision(state.node, state.gpu, device.placement, device.profile, mig_uuid, cut=False)
    return None


def cut_decision(state: GPUState, best: Best) -> Decision:
    """A new instance on this GPU."""
    placement = Placement(state.gpu.gpu_uuid, best.start, best.profile.size)
    return Decision(state.node, state.gpu, placement, best.profile, None, cut=True)
