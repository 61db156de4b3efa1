"""What one GPU will be able to serve, and when: its state now, and when what is on it will end.

Only ends that are agreed count: a lease with a duration, a lease that is being released. Of the others nobody knows when they
end; they are counted, so that of two GPUs the one with fewer of them is expected to be free first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

from mig_spawner.domain.fleet import Decision, Device, GPUState
from mig_spawner.domain.gpu import Engines, Placement, Profile
from mig_spawner.domain.policy.apart import Rules, forbidding
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest

NO_ENGINES: Final = Engines()


class Start(NamedTuple):
    """When something can begin; the lesser is the earlier.

    Attributes:
        unknown: how many leases have to end before of which nobody knows when.
        at: when the others have ended.
    """

    unknown: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Stay:
    """Something of ours on a GPU, for as long as it lasts.

    Attributes:
        until: when its memory slices are expected to be free again; None if nobody knows.
        frees: whether its slices can be cut anew afterwards. The instance under a lease on an admin's partition stays.
        groups: of its holder, as far as it has one.
    """

    mask: int
    engines: Engines = NO_ENGINES
    until: datetime | None = None
    frees: bool = True
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Spot:
    """A place on one GPU where a request could sit, now or later.

    Attributes:
        profile: None for the whole GPU.
        device_uuid: of the standing MIG device that it is; None where one has to be made.
    """

    placement: Placement
    profile: Profile | None
    device_uuid: str | None = None


@dataclass(frozen=True)
class Outlook:
    """One GPU with what is on it. A GPU where nothing may be granted now has no outlook at all: it may come back, or not.

    Attributes:
        kept: what is kept for leases that wait, in their order; it counts as if it were taken.
    """

    state: GPUState
    now: datetime
    stays: tuple[Stay, ...] = ()
    kept: tuple[Stay, ...] = ()

    def earliest(self, choices: Iterable[Request]) -> tuple[Start, Spot] | None:
        """The earliest start of any of these, and where; None if this GPU will never serve one."""
        best: tuple[Start, Spot] | None = None
        for request in choices:
            for spot in self.spots(request):
                start = self.start_at(spot)
                if start is not None and (best is None or start < best[0]):
                    best = start, spot
        return best

    def spots(self, request: Request) -> Iterator[Spot]:
        """Every place of this GPU that would do."""
        state, gpu = self.state, self.state.gpu
        match request:
            case WholeRequest():
                if state.can_be_whole:
                    yield Spot(gpu.whole, None)
            case DeviceRequest(mig_uuid):
                yield from (_device_spot(device) for device in state.devices if device.device_uuid == mig_uuid)
            case SliceRequest(name):
                yield from self._spots_of([p for p in gpu.profiles if p.name == name])
                yield from (_device_spot(device) for device in state.devices if device.profile.name == name)
            case MemoryRequest(gigabytes):
                yield from self._spots_of([p for p in gpu.profiles if _suffices(p, gigabytes)])
                yield from (_device_spot(device) for device in state.devices if _suffices(device.profile, gigabytes))

    def _spots_of(self, profiles: Sequence[Profile]) -> Iterator[Spot]:
        if self.state.cuttable_when_empty:
            for profile in profiles:
                for start in profile.starts:
                    yield Spot(Placement(self.state.gpu.gpu_uuid, start, profile.size), profile)

    def start_at(self, spot: Spot) -> Start | None:
        """When somebody can begin at a place of this GPU; None for never, as far as is known."""
        if self.state.unavailable is not None:
            return None
        if spot.device_uuid is not None:
            return self._start_of_device(spot)
        needs_empty = spot.profile is None or self.state.mig_enabled is not True
        mask = self.state.gpu.whole.mask if needs_empty else spot.placement.mask
        others = (*self.stays, *self.kept)
        if self._fixed_mask & mask or any(not stay.frees and stay.mask & mask for stay in others):
            return None
        in_the_way = [stay for stay in others if stay.mask & mask]
        if spot.profile is not None:
            beside = [stay for stay in others if not stay.mask & mask]
            more = self._in_the_way_of_engines(spot.profile, beside)
            if more is None:
                return None
            in_the_way += more
        return self._after(in_the_way, int(needs_empty and self.state.busy and not in_the_way))

    def _start_of_device(self, spot: Spot) -> Start | None:
        device = next((d for d in self.state.devices if d.device_uuid == spot.device_uuid), None)
        if device is None:
            return None
        in_the_way = [stay for stay in (*self.stays, *self.kept) if stay.mask & device.placement.mask]
        return self._after(in_the_way, int(not device.idle and not in_the_way))

    def _in_the_way_of_engines(self, profile: Profile, beside: Sequence[Stay]) -> list[Stay] | None:
        """Those beside it that have to end since engines are short, soonest first; None if that would not help either."""
        budget = self.state.gpu.engines
        left = sorted((stay for stay in beside if stay.engines != NO_ENGINES), key=lambda stay: _end(stay, self.now))
        ending: list[Stay] = []
        while not _sum((self._fixed_engines, profile.engines, *(stay.engines for stay in left))).fit_in(budget):
            if not left:
                return None
            ending.append(left.pop(0))
        return ending

    def _after(self, in_the_way: Iterable[Stay], unknown: int) -> Start:
        at = self.now
        for stay in in_the_way:
            if stay.until is None:
                unknown += 1
            else:
                at = max(at, stay.until)
        return Start(unknown, at)

    @cached_property
    def _fixed_mask(self) -> int:
        """Memory slices that something has of which the ledger does not know when it ends."""
        mask = self.state.layout.mask
        for stay in self.stays:
            mask &= ~stay.mask
        return mask

    @cached_property
    def _fixed_engines(self) -> Engines:
        total, ours = self.state.layout.engines, _sum(stay.engines for stay in self.stays)
        return Engines(
            max(total.copy - ours.copy, 0),
            max(total.decoder - ours.decoder, 0),
            max(total.encoder - ours.encoder, 0),
            max(total.jpeg - ours.jpeg, 0),
            max(total.ofa - ours.ofa, 0),
        )

    def keeping(self, *kept: Stay) -> Outlook:
        """The same GPU with these places kept for leases that wait, instead of those that were kept before."""
        return self if kept == self.kept else replace(self, kept=kept)

    def granting(self, decision: Decision, until: datetime | None, groups: frozenset[str] = frozenset()) -> Outlook:
        """The same GPU after a grant here to somebody with these groups."""
        stay = stay_of(decision, until, groups)
        return Outlook(granted_state(self.state, decision), self.now, (*self.stays, stay), self.kept)

    def apart(self, rules: Rules, groups: frozenset[str]) -> str | None:
        """The group because of which somebody with these groups may not have anything here now; None if they may."""
        found = (forbidding(rules, groups, stay.groups) for stay in self.stays)
        return next((group for group in found if group is not None), None)

    def seen_by(self, rules: Rules, groups: frozenset[str]) -> Outlook:
        """The same GPU for somebody with these groups: who is kept apart from them is in the way of every place on it."""
        others = [stay for stay in (*self.stays, *self.kept) if forbidding(rules, groups, stay.groups) is not None]
        if not others:
            return self
        whole = self.state.gpu.whole.mask
        return replace(self, kept=(*self.kept, *(Stay(whole, until=stay.until) for stay in others)))


def stay_of(decision: Decision, until: datetime | None, groups: frozenset[str] = frozenset()) -> Stay:
    """What a grant to somebody with these groups will be on its GPU."""
    profile = decision.profile
    engines = Engines() if profile is None else profile.engines
    return Stay(decision.placement.mask, engines, until, frees=decision.cut or profile is None, groups=groups)


def granted_state(state: GPUState, decision: Decision) -> GPUState:
    """A GPU as placement will see it once a grant on it is in the ledger."""
    if decision.profile is not None and not decision.cut:
        mine = decision.device_uuid
        return replace(state, devices=tuple(replace(d, idle=d.idle and d.device_uuid != mine) for d in state.devices))
    engines = Engines() if decision.profile is None else decision.profile.engines
    return replace(state, layout=state.layout.with_taken(decision.placement, engines))


def could_serve(state: GPUState, choices: Iterable[Request]) -> bool:
    """Whether a GPU might serve one of these, now or ever."""
    outlook = Outlook(state, _ANY_TIME)
    return any(True for request in choices for _ in outlook.spots(request))


def _device_spot(device: Device) -> Spot:
    return Spot(device.placement, device.profile, device.device_uuid)


def _suffices(profile: Profile, gigabytes: float) -> bool:
    return not profile.name.suffix and profile.name.memory_gb >= gigabytes


def _sum(engines: Iterable[Engines]) -> Engines:
    total = Engines()
    for some in engines:
        total += some
    return total


def _end(stay: Stay, now: datetime) -> Start:
    return Start(1, now) if stay.until is None else Start(0, stay.until)


_ANY_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
