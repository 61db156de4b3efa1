"""What the idle partitions of one GPU could be cut into, so that it serves those who wait.

A GPU with partitions of an admin keeps all that is used, and every idle one that is not in the way. What is taken away for somebody is
made up for with what was there, as far as it fits. On a GPU that is cut on demand nothing is made: what is left over only goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import Engines, Layout, Placement, Profile
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest

Choices = Sequence[Request]


@dataclass(frozen=True, slots=True)
class Piece:
    """A partition, there or to be made."""

    profile: Profile
    start: int

    @property
    def mask(self) -> int:
        return ((1 << self.profile.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.profile.name}@{self.start}"


@dataclass(frozen=True, slots=True)
class Cut:
    """Another cut of one GPU.

    Attributes:
        remove: idle partitions that go.
        make: partitions that come; none where the GPU is cut on demand.
        serves: for how many of those who wait it makes room.
    """

    gpu_uuid: str
    remove: tuple[Piece, ...]
    make: tuple[Piece, ...]
    serves: int


def cut_for(state: GPUState, waiting: Iterable[Choices]) -> Cut | None:
    """The cut of a GPU's idle partitions that serves those who wait, in their order; None if no cut would serve any.

    Each is given the place for which the least that stands idle has to go.
    """
    idle = [device for device in state.devices if device.idle]
    if state.unavailable is not None or state.mig_enabled is not True or (state.dynamic and not idle):
        return None
    attempt = _Attempt(state, idle)
    serves = sum(attempt.serve(choices) for choices in waiting)
    if not serves:
        return None
    if not state.dynamic:
        attempt.make_up()
    removed = tuple(Piece(device.profile, device.placement.start) for device in attempt.gone)
    return Cut(state.gpu.gpu_uuid, removed, () if state.dynamic else tuple(attempt.made), serves)


def after(state: GPUState, cut: Cut) -> GPUState:
    """A GPU as it will be with this cut."""
    gone = {piece.start for piece in cut.remove}
    stay = tuple(device for device in state.devices if device.placement.start not in gone)
    layout = _without(state.layout, [(p.mask, p.profile.engines) for p in cut.remove])
    devices = list(stay)
    for piece in cut.make:
        place = Placement(state.gpu.gpu_uuid, piece.start, piece.profile.size)
        layout = layout.with_instance(piece.profile, piece.start)
        devices.append(Device(place, piece.profile, f"new-{piece.start}", idle=True))
    devices.sort(key=lambda device: device.placement.start)
    return replace(state, layout=layout, devices=tuple(devices))


class _Attempt:
    """A GPU while places are found on it: what may still go, what goes, what was made."""

    def __init__(self, state: GPUState, idle: Sequence[Device]) -> None:
        self._state = state
        self._idle = list(idle)
        self.gone: list[Device] = []
        self.made: list[Piece] = []

    def serve(self, choices: Choices) -> bool:
        """Find a place for one who waits. False if there is none, or if there is one as things are, which is kept then."""
        for request in choices:
            if self._keeps(request):
                return False
        for request in choices:
            if isinstance(request, WholeRequest):
                if self._serve_whole():
                    return True
                continue
            for profile in _profiles(self._state, request):
                if self._serve_profile(profile):
                    return True
        return False

    def _keeps(self, request: Request) -> bool:
        names = {profile.name for profile in _profiles(self._state, request)}
        for device in self._idle:
            if device.profile.name in names:
                self._idle.remove(device)
                return True
        return False

    def _serve_profile(self, profile: Profile) -> bool:
        best: tuple[int, int, int] | None = None
        for start in profile.starts:
            piece = Piece(profile, start)
            in_the_way = [device for device in self._idle if device.placement.mask & piece.mask]
            if start in self._layout(without=in_the_way).starts(profile):
                cost = (sum(device.placement.size for device in in_the_way), len(in_the_way), start)
                best = cost if best is None else min(best, cost)
        if best is None:
            return False
        self._take(Piece(profile, best[2]))
        # Where free memory slices are cut on demand, they need no proposal.
        return best[0] > 0 or not self._state.dynamic or bool(self.gone)

    def _serve_whole(self) -> bool:
        if not self._state.dynamic or self.made or not self._layout(without=self._idle).empty:
            return False
        self.gone += self._idle
        self._idle = []
        # Nothing else fits beside a whole GPU.
        self.made.append(Piece(replace(self._state.gpu.profiles[0], size=self._state.gpu.grid), 0))
        return True

    def _take(self, piece: Piece) -> None:
        self.gone += [device for device in self._idle if device.placement.mask & piece.mask]
        self._idle = [device for device in self._idle if not device.placement.mask & piece.mask]
        self.made.append(piece)

    def make_up(self) -> None:
        """Fill what is free with what has gone, the largest first, and then with the smallest there is."""
        lost = sorted((device.profile for device in self.gone), key=lambda profile: -profile.size)
        plain = [profile for profile in self._state.gpu.profiles if not profile.name.suffix]
        smallest = sorted(plain, key=lambda profile: (profile.size, profile.compute_slices))[:1]
        for profile in lost:
            self._fill(profile, at_most=1)
        for profile in smallest:
            self._fill(profile, at_most=self._state.gpu.grid)

    def _fill(self, profile: Profile, *, at_most: int) -> None:
        """Only where something has gone: what was free before is somebody else's to cut."""
        room = 0
        for device in self.gone:
            room |= device.placement.mask
        for _ in range(at_most):
            free = self._layout(without=()).starts(profile)
            starts = [start for start in free if not Piece(profile, start).mask & ~room]
            if not starts:
                return
            self.made.append(Piece(profile, starts[0]))

    def _layout(self, *, without: Sequence[Device]) -> Layout:
        """The GPU now, were these gone as well."""
        going = [(d.placement.mask, d.profile.engines) for d in (*self.gone, *without)]
        layout = _without(self._state.layout, going)
        for piece in self.made:
            layout = layout.with_instance(piece.profile, piece.start)
        return layout


def _without(layout: Layout, going: Iterable[tuple[int, Engines]]) -> Layout:
    mask, engines = layout.mask, layout.engines
    for gone, held in going:
        mask &= ~gone
        engines = Engines(
            engines.copy - held.copy,
            engines.decoder - held.decoder,
            engines.encoder - held.encoder,
            engines.jpeg - held.jpeg,
            engines.ofa - held.ofa,
        )
    return Layout(layout.gpu, mask, engines, layout.heads & mask)


def _profiles(state: GPUState, request: Request) -> Iterator[Profile]:
    """The profiles of a GPU that would do, the best first."""
    match request:
        case SliceRequest(name):
            yield from (p for p in state.gpu.profiles if p.name == name)
        case MemoryRequest(gigabytes):
            able = [p for p in state.gpu.profiles if not p.name.suffix and p.name.memory_gb >= gigabytes]
            yield from sorted(able, key=lambda p: (p.name.memory_gb, p.name.compute_slices))
        case WholeRequest() | DeviceRequest():
            return
