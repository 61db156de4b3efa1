"""GPUs, the profiles they offer, and where instances sit.

A GPU is a row of memory slices, its grid: 8 long on A100 to GB300, 4 on an A30, 12 on an RTX PRO 6000. An instance of a
profile may begin at one of the profile's starts and covers `size` slices from there. Two rules give every limit that
NVIDIA publishes: placements do not overlap, and engines (copy, decode, encode, JPEG, optical flow) do not exceed those of the GPU.

All of it comes from the driver's report; there are no tables here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Engines:
    """Counts of the shared engines of a profile or GPU."""

    copy: int = 0
    decoder: int = 0
    encoder: int = 0
    jpeg: int = 0
    ofa: int = 0

    # Written out, since placement adds and compares engines thousands of times.

    def __add__(self, other: Engines) -> Engines:
        return Engines(
            self.copy + other.copy,
            self.decoder + other.decoder,
            self.encoder + other.encoder,
            self.jpeg + other.jpeg,
            self.ofa + other.ofa,
        )

    def __or__(self, other: Engines) -> Engines:
        """The greater of both, engine by engine."""
        return Engines(
            max(self.copy, other.copy),
            max(self.decoder, other.decoder),
            max(self.encoder, other.encoder),
            max(self.jpeg, other.jpeg),
            max(self.ofa, other.ofa),
        )

    def fit_in(self, budget: Engines) -> bool:
        return (
            self.copy <= budget.copy
            and self.decoder <= budget.decoder
            and self.encoder <= budget.encoder
            and self.jpeg <= budget.jpeg
            and self.ofa <= budget.ofa
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """A shape of GPU instance that one GPU offers.

    Attributes:
        name: what people call it.
        profile_id: the number that *creates* it (the ID column of `nvidia-smi mig -lgip`); opaque, differs between GPUs.
        size: length of a placement in memory slices.
        starts: allowed first memory slices, ascending.
        compute_slices: the `g` of the name.
        memory_mib: memory of the profile in MiB as the driver says it (a device's own total differs a little).
        multiprocessors: SMs.
        engines: shared engines the instance takes.
    """

    name: ProfileName
    profile_id: int
    size: int
    starts: tuple[int, ...]
    compute_slices: int
    memory_mib: int
    multiprocessors: int
    engines: Engines = Engines()

    def __post_init__(self) -> None:
        if self.size < 1 or not self.starts or min(self.starts) < 0:
            raise InvalidRequest(
                f"Profile {self.name} has no usable placement (size {self.size}, starts {list(self.starts)})."
            )


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """Where a GPU instance sits: `size` memory slices of one GPU, from `start` on."""

    gpu_uuid: str
    start: int
    size: int

    @property
    def slices(self) -> range:
        return range(self.start, self.start + self.size)

    @property
    def mask(self) -> int:
        """The covered memory slices as bits, slice 0 lowest."""
        return ((1 << self.size) - 1) << self.start

    def overlaps(self, other: Placement) -> bool:
        return self.gpu_uuid == other.gpu_uuid and bool(self.mask & other.mask)


@dataclass(frozen=True, slots=True)
class GPU:
    """A physical GPU as its driver describes it, without what is on it now.

    Attributes:
        gpu_uuid: `GPU-…`.
        model: product name.
        memory_mib: total memory in MiB.
        multiprocessors: SMs of the whole GPU.
        profiles: what it can be cut into; empty for a GPU without MIG (or whose driver does not say while MIG is off).
        grid: length of the grid in memory slices, the end of the farthest placement; 1 for a GPU without profiles.
        engines: the engine budget, engine by engine what the best-equipped profile has.
    """

    gpu_uuid: str
    model: str
    memory_mib: int
    multiprocessors: int
    profiles: tuple[Profile, ...] = ()
    grid: int = field(init=False, compare=False, repr=False)
    engines: Engines = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        engines = Engines()
        for profile in self.profiles:
            engines |= profile.engines
        object.__setattr__(self, "engines", engines)
        object.__setattr__(self, "grid", max((max(p.starts) + p.size for p in self.profiles), default=1))

    @property
    def whole(self) -> Placement:
        """The placement of a lease on the whole GPU."""
        return Placement(self.gpu_uuid, 0, self.grid)

    def profile(self, name: ProfileName) -> Profile | None:
        return next((p for p in self.profiles if p.name == name), None)

    def profile_by_id(self, profile_id: int) -> Profile | None:
        return next((p for p in self.profiles if p.profile_id == profile_id), None)


@dataclass(frozen=True, slots=True)
class Layout:
    """What is taken on one GPU: the slices as bits, the engines in use, and where one instance ends and the next begins.

    Attributes:
        mask: the taken memory slices, slice 0 lowest.
        heads: the first slice of each instance. Two 1g and one 2g take the same slices, and do not give them back alike.
    """

    gpu: GPU
    mask: int = 0
    engines: Engines = Engines()
    heads: int = 0

    @property
    def empty(self) -> bool:
        return self.mask == 0

    @property
    def taken(self) -> int:
        """How many memory slices are taken."""
        return self.mask.bit_count()

    def with_instance(self, profile: Profile, start: int) -> Layout:
        """The layout with one instance more. It does not ask whether that is allowed; see `allows`."""
        window = ((1 << profile.size) - 1) << start
        return Layout(self.gpu, self.mask | window, self.engines + profile.engines, self.heads | 1 << start)

    def with_taken(self, placement: Placement, engines: Engines = Engines()) -> Layout:
        """The layout with these slices taken by something whose profile need not be known."""
        return Layout(self.gpu, self.mask | placement.mask, self.engines + engines, self.heads | 1 << placement.start)

    def starts(self, profile: Profile) -> tuple[int, ...]:
        """Where one more instance of `profile` may begin now, ascending; empty if nowhere."""
        if not (self.engines + profile.engines).fit_in(self.gpu.engines):
            return ()
        window = (1 << profile.size) - 1
        return tuple(start for start in profile.starts if not self.mask & (window << start))

    def capacity(self, profile: Profile) -> int:
        """How many more instances of `profile` fit if nothing else came.

        The starts of a profile are tried from the left: windows of one length, so the greedy choice is the greatest.
        """
        count, layout = 0, self
        for start in sorted(profile.starts):
            if start in layout.starts(profile):
                layout = layout.with_instance(profile, start)
                count += 1
        return count


def layout_of(gpu: GPU, instances: Iterable[tuple[Profile, int]]) -> Layout:
    """The layout that these (profile, start) instances make on an otherwise empty GPU."""
    layout = Layout(gpu)
    for profile, start in instances:
        layout = layout.with_instance(profile, start)
    return layout
