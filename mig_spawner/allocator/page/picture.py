"""A GPU as a picture: every memory slice of its grid, what sits there and what could still be cut. Pure: values in, values out.

A template draws it as SVG and says the same in a table. A kind of piece has a colour, a pattern and a word, so that the picture
can be read in grey and without eyes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from mig_spawner.allocator.page.words import processes
from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import Placement
from mig_spawner.wire.node import GPUDocument, Health, InstanceDocument

WIDTH: Final = 408
HEIGHT: Final = 48
"""How large a GPU is drawn. Only the ratio matters: the page scales it."""


class Kind(StrEnum):
    """What a piece of a grid is."""

    FREE = "free"
    STUCK = "stuck"
    IDLE = "idle"
    MAKING = "making"
    READY = "ready"
    ACTIVE = "active"
    RELEASING = "releasing"
    REMNANT = "remnant"
    POD = "pod"
    FOREIGN = "foreign"

    @property
    def word(self) -> str:
        """What people read."""
        return _WORDS[self]


_WORDS: Final = {
    Kind.FREE: "free",
    Kind.STUCK: "free, nothing is cut there",
    Kind.IDLE: "partition, idle",
    Kind.MAKING: "being made",
    Kind.READY: "ready for its server",
    Kind.ACTIVE: "in use",
    Kind.RELEASING: "being released",
    Kind.REMNANT: "being destroyed",
    Kind.POD: "a pod without lease",
    Kind.FOREIGN: "used by others",
}
_LEASED: Final = (Kind.MAKING, Kind.READY, Kind.ACTIVE, Kind.RELEASING)


@dataclass(frozen=True, slots=True)
class Occupant:
    """Something of ours that has memory slices of a GPU.

    Attributes:
        what: the profile, `whole GPU`, or empty where it is not known any more.
        who: whose it is; empty for nobody's.
        until: when its time is over; None without a limit.
    """

    placement: Placement
    kind: Kind
    what: str = ""
    who: str = ""
    lease_id: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of memory slices with one thing on it; a single one where it is free. `note` says more, in words."""

    start: int
    size: int
    kind: Kind
    what: str = ""
    who: str = ""
    lease_id: str = ""
    until: datetime | None = None
    note: str = ""

    @property
    def leased(self) -> bool:
        """It is somebody's by an open lease."""
        return self.kind in _LEASED

    @property
    def slices(self) -> str:
        """`3`, or `0 to 3`."""
        return str(self.start) if self.size == 1 else f"{self.start} to {self.start + self.size - 1}"


@dataclass(frozen=True, slots=True)
class Cut:
    """A profile of which so many could be cut now, if nothing else came."""

    profile: str
    count: int


@dataclass(frozen=True, slots=True)
class GPUPicture:
    """One GPU.

    Attributes:
        memory_gb: GiB, rounded.
        free: memory slices with nothing on them.
        trouble: why nothing is granted here now; empty if it may.
        cuts: what could still be cut, largest first; empty where nothing can.
        whole: it could be leased uncut now.
        mode: how it is cut, in words.
    """

    node: str
    gpu_uuid: str
    model: str
    memory_gb: int
    grid: int
    pieces: tuple[Piece, ...]
    free: int
    health: Health
    trouble: str
    cuts: tuple[Cut, ...]
    whole: bool
    mode: str

    @property
    def unit(self) -> float:
        """How wide one memory slice is drawn."""
        return WIDTH / self.grid


def picture(state: GPUState, document: GPUDocument, occupants: Iterable[Occupant]) -> GPUPicture:
    """A GPU as the ledger and the last report of its node have it. Where both speak of one slice, the ledger is believed."""
    ours = sorted(occupants, key=lambda o: o.placement.start)
    pieces = list(_pieces(state, document, ours))
    cuts = _cuts(state) if state.unavailable is None else ()
    return GPUPicture(
        node=state.node,
        gpu_uuid=state.gpu.gpu_uuid,
        model=state.gpu.model,
        memory_gb=round(state.gpu.memory_mib / 1024),
        grid=state.gpu.grid,
        pieces=tuple(sorted(pieces, key=lambda p: p.start)),
        free=sum(p.size for p in pieces if p.kind in (Kind.FREE, Kind.STUCK)),
        health=document.health,
        trouble=state.unavailable or "",
        cuts=cuts,
        whole=state.whole_free,
        mode=_mode(state),
    )


def _pieces(state: GPUState, document: GPUDocument, ours: Sequence[Occupant]) -> Iterator[Piece]:
    grid, taken = state.gpu.grid, 0
    for occupant in ours:
        place = occupant.placement
        size = min(place.start + place.size, grid) - place.start
        if size > 0 and not taken & place.mask:
            taken |= place.mask
            yield Piece(
                place.start,
                size,
                occupant.kind,
                occupant.what,
                occupant.who,
                occupant.lease_id,
                occupant.until,
            )
    devices = {(d.placement.start, d.placement.size): d for d in state.devices}
    for instance in document.instances:
        place = Placement(document.gpu_uuid, instance.start, instance.size)
        if not taken & place.mask:
            taken |= place.mask
            yield _standing(instance, devices.get((instance.start, instance.size)))
    busy = state.busy and not taken
    for at in range(grid):
        if not taken >> at & 1:
            yield _bare(state, at, busy=busy)


def _standing(instance: InstanceDocument, device: Device | None) -> Piece:
    """An instance that is nobody's lease."""
    what = instance.profile or ""
    if device is not None and device.idle:
        return Piece(instance.start, instance.size, Kind.IDLE, what)
    if instance.mig_uuid is None:
        note = "half-made: it has no compute instance"
    elif instance.processes is None:
        note = "whether a process runs on it is not known"
    elif instance.processes:
        note = f"{processes(instance.processes)} on it"
    else:
        note = "no lease has it"
    return Piece(instance.start, instance.size, Kind.FOREIGN, what, note=note)


def _bare(state: GPUState, at: int, *, busy: bool) -> Piece:
    if busy:
        return Piece(at, 1, Kind.FOREIGN, note="a process runs on the uncut GPU, or that cannot be known")
    if state.unavailable is not None or not (state.cuttable or state.whole_free):
        return Piece(at, 1, Kind.STUCK)
    return Piece(at, 1, Kind.FREE)


def _cuts(state: GPUState) -> tuple[Cut, ...]:
    if not state.cuttable:
        return ()
    counted = [(p, state.layout.capacity(p)) for p in state.gpu.profiles if not p.name.suffix]
    counted.sort(key=lambda pair: (pair[0].memory_mib, pair[0].compute_slices), reverse=True)
    return tuple(Cut(str(profile.name), count) for profile, count in counted if count)


def _mode(state: GPUState) -> str:
    match state.mig_enabled, state.dynamic:
        case None, _:
            return "has no MIG mode"
        case True, True:
            return "MIG on, cut on demand"
        case True, False:
            return "MIG on, partitions of an admin"
        case False, True:
            return "MIG off, cut on demand"
        case _:
            return "MIG off"
