"""What a layout means for the GPUs of one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mig_spawner.domain.gpu import GPU, Layout, Profile
from mig_spawner.domain.layout.arrangement import arrange
from mig_spawner.domain.layout.model import Finding, NamedLayout, Part
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidProfile, InvalidRequest

_NEAR_GB = 2
"""How far two names of one profile may be apart: 7g.79gb and 7g.80gb are the same, rounded down and up."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A GPU of a node: its index in the order of the driver, and its PCI device id if that is known."""

    index: int
    gpu: GPU
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """How one GPU is to look.

    Attributes:
        places: profile and start of each instance; empty with MIG mode off.
    """

    gpu_uuid: str
    enabled: bool
    places: tuple[tuple[Profile, int], ...] = ()


def intend(layout: NamedLayout, seats: Sequence[Seat]) -> tuple[list[Intent], list[Finding]]:
    """How the GPUs that a layout speaks of are to look. A part that cannot be had on some GPU is a finding."""
    intents: list[Intent] = []
    findings: list[Finding] = []
    spoken: dict[int, int] = {}
    for number, part in enumerate(layout.parts, 1):
        where = f"{layout.name}, part {number}"
        findings += [
            Finding(where, f"There is no GPU {index} here; this node has {len(seats)}.")
            for index in part.gpus or ()
            if all(seat.index != index for seat in seats)
        ]
        meant = [seat for seat in seats if part.means(seat.index, seat.model)]
        if not meant and part.models:
            there = ", ".join(sorted({seat.model or "unknown" for seat in seats})) or "none"
            findings.append(
                Finding(where, f"It speaks of no GPU that is here: their PCI device ids are {there}.", fatal=False)
            )
        for seat in meant:
            if seat.index in spoken:
                findings.append(Finding(where, f"Part {spoken[seat.index]} speaks of GPU {seat.index} already."))
                continue
            spoken[seat.index] = number
            try:
                intents.append(_intent(part, seat))
            except InvalidRequest as error:
                findings.append(Finding(f"{where}, GPU {seat.index}", str(error)))
    return intents, findings


def _intent(part: Part, seat: Seat) -> Intent:
    if not part.enabled:
        return Intent(seat.gpu.gpu_uuid, enabled=False)
    if not seat.gpu.profiles:
        raise InvalidRequest(
            f"{seat.gpu.model} has no MIG mode, or its driver does not tell its profiles while that is off."
        )
    taken, places = Layout(seat.gpu), []
    wanted: list[ProfileName] = []
    for name, count in part.counts.items():
        profile = _profile(seat.gpu, name)
        starts = part.starts.get(name)
        if starts is None:
            wanted += [profile.name] * count
            continue
        for start in starts:
            if start not in taken.starts(profile):
                raise InvalidRequest(_no_place(seat.gpu, profile, start))
            taken = taken.with_instance(profile, start)
            places.append((profile, start))
    try:
        found = arrange(seat.gpu, wanted, on=taken)
    except InvalidRequest:
        raise InvalidRequest(_no_room(seat.gpu, part)) from None
    places += found
    return Intent(seat.gpu.gpu_uuid, enabled=True, places=tuple(sorted(places, key=lambda place: place[1])))


def _profile(gpu: GPU, name: str) -> Profile:
    """The profile of a GPU with this name. Another one is proposed, never taken."""
    try:
        wanted = ProfileName.parse(name)
    except InvalidProfile:
        wanted = None
    found = None if wanted is None else gpu.profile(wanted)
    if found is not None:
        return found
    near = [
        str(p.name)
        for p in gpu.profiles
        if wanted is not None
        and (p.name.compute_slices, p.name.suffix) == (wanted.compute_slices, wanted.suffix)
        and abs(p.name.memory_gb - wanted.memory_gb) <= _NEAR_GB
    ]
    if len(near) == 1:
        raise InvalidRequest(f"{gpu.model} calls it {near[0]}, not {name}: write {near[0]}.")
    offered = ", ".join(str(p.name) for p in gpu.profiles)
    raise InvalidRequest(f"{gpu.model} has no {name}. It has {offered}.")


def _no_place(gpu: GPU, profile: Profile, start: int) -> str:
    if start not in profile.starts:
        return (
            f"{profile.name} cannot begin at {start} on {gpu.model}; it can at {', '.join(map(str, profile.starts))}."
        )
    return f"{profile.name} at {start} is in the way of another instance, or there are no engines left for it."


def _no_room(gpu: GPU, part: Part) -> str:
    words = ", ".join(f"{count} x {name}" for name, count in part.counts.items())
    if len(part.counts) == 1:
        (name,) = part.counts
        most = Layout(gpu).capacity(_profile(gpu, name))
        return f"{words} do not fit on {gpu.model}: it holds {most}."
    return f"{words} do not fit together on {gpu.model}."
