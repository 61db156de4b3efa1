"""The GPUs of a simulation: so many of a model, left to be cut on demand or cut once and for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mig_spawner.domain.fleet import Device, GPUState
from mig_spawner.domain.gpu import GPU, Layout, Placement, Profile
from mig_spawner.domain.layout.arrangement import arrange
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import find_model

MAX_GPUS: Final = 20_000
DYNAMIC: Final = "dynamic"
ALL_1G: Final = "all-1g"
ALL_BALANCED: Final = "all-balanced"

Cut = tuple[ProfileName, ...]
"""The instances on one GPU, in any order."""


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs of one model."""

    model: str
    count: int

    @classmethod
    def parse(cls, text: str) -> Group:
        """Read `a100-80gb:8`; without a number it is one.

        Raises:
            InvalidRequest: with a sentence that says what to write instead.
        """
        model, _, number = text.partition(":")
        count = int(number) if number.isascii() and number.isdigit() and len(number) < 8 else (0 if number else 1)
        if not 1 <= count <= MAX_GPUS:
            raise InvalidRequest(
                f"GPUs are given as MODEL:COUNT, like a100-80gb:8 (1 to {MAX_GPUS}), not {text[:60]!r}."
            )
        return cls(find_model(model).key, count)

    def __str__(self) -> str:
        return f"{self.model}:{self.count}"


def gpus_of(groups: Sequence[Group]) -> list[GPU]:
    """The GPUs, named by number.

    Raises:
        InvalidRequest: too many.
    """
    if sum(group.count for group in groups) > MAX_GPUS:
        raise InvalidRequest(f"At most {MAX_GPUS} GPUs can be simulated.")
    found: list[GPU] = []
    for group in groups:
        model = find_model(group.model)
        profiles = model.gpu("").profiles
        # One tuple of profiles for all of a group: who compares them finds the same object.
        found += [
            GPU(f"GPU-{len(found) + n}", model.product, model.memory_mib, model.multiprocessors, profiles)
            for n in range(group.count)
        ]
    return found


def dynamic(gpus: Iterable[GPU]) -> list[GPUState]:
    """Empty GPUs in MIG mode that are cut on demand."""
    return [GPUState(_node(number), gpu, Layout(gpu)) for number, gpu in enumerate(gpus)]


def static(gpus: Sequence[GPU], cuts: Sequence[Cut]) -> list[GPUState]:
    """GPUs cut once and for all, each as its cut says. An empty cut leaves a GPU whole, out of MIG mode.

    Raises:
        InvalidRequest: a cut that does not fit its GPU.
    """
    return [_cut(number, gpu, cut) for number, (gpu, cut) in enumerate(zip(gpus, cuts, strict=True))]


def _cut(number: int, gpu: GPU, cut: Cut) -> GPUState:
    layout, devices = Layout(gpu), []
    for profile, start in sorted(arrange(gpu, cut), key=lambda place: place[1]):
        layout = layout.with_instance(profile, start)
        place = Placement(gpu.gpu_uuid, start, profile.size)
        devices.append(Device(place, profile, f"MIG-{gpu.gpu_uuid}-{start}", idle=True))
    return GPUState(_node(number), gpu, layout, tuple(devices), dynamic=False, mig_enabled=bool(cut))


def _node(number: int) -> str:
    return f"node-{number // 8}"


def plain(gpu: GPU) -> list[Profile]:
    """The profiles of a GPU without media suffix, smallest first."""
    return sorted((p for p in gpu.profiles if not p.name.suffix), key=lambda p: (p.size, p.compute_slices))


def named_cut(gpu: GPU, name: str) -> Cut:
    """What `all-1g` and NVIDIA's `all-balanced` make of a GPU: as many of the smallest as fit; two of it, a 2g and, where there is
    room, a 3g.

    Raises:
        InvalidRequest: no such layout.
    """
    profiles = plain(gpu)
    if not profiles:
        return ()
    smallest = profiles[0]
    if name == ALL_1G:
        return (smallest.name,) * Layout(gpu).capacity(smallest)
    if name == ALL_BALANCED:
        by_g: Mapping[int, Profile] = {p.compute_slices: p for p in reversed(profiles)}
        return tuple(p.name for p in (smallest, smallest, by_g.get(2), by_g.get(3)) if p is not None)
    raise InvalidRequest(f"{name!r} is no layout. Choose {DYNAMIC}, {ALL_1G} or {ALL_BALANCED}.")


def fleet_of(gpus: Sequence[GPU], layout: str) -> list[GPUState]:
    """The GPUs under a layout by name: `dynamic`, `all-1g` or `all-balanced`."""
    if layout == DYNAMIC:
        return dynamic(gpus)
    return static(gpus, [named_cut(gpu, layout) for gpu in gpus])
