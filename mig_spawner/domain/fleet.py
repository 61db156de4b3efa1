"""The GPUs of all nodes as placement sees them: what is taken, what lies idle, what may be touched.

A `GPUState` is derived afresh from the last report of its node and the open leases; nobody keeps one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mig_spawner.domain.gpu import GPU, Engines, Layout, Placement, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest


@dataclass(frozen=True, slots=True)
class Device:
    """A MIG device that exists and that we did not make for a lease: an admin's partition, leased as it stands.

    Attributes:
        idle: nobody holds it and no process runs on it. Unknown is not idle.
    """

    placement: Placement
    profile: Profile
    device_uuid: str
    idle: bool


@dataclass(frozen=True, slots=True)
class GPUState:
    """One GPU now.

    Attributes:
        node: the Kubernetes node it sits in.
        layout: everything taken: leases, instances of anybody, instances still to be destroyed.
        devices: existing MIG devices that can be leased as they are.
        dynamic: whether its agent may cut free memory slices (and switch MIG mode on an empty GPU).
        mig_enabled: MIG mode; None for a GPU that has no such mode.
        unavailable: why nothing may be granted here now (node silent, cordoned, GPU lost …); None if it may.
        busy: a process runs on the uncut GPU, or that cannot be known.
    """

    node: str
    gpu: GPU
    layout: Layout
    devices: tuple[Device, ...] = ()
    dynamic: bool = True
    mig_enabled: bool | None = True
    unavailable: str | None = None
    busy: bool = False

    def free(self, name: ProfileName) -> int:
        """How many leases of this profile could be granted here now, if nothing else came."""
        if self.unavailable is not None:
            return 0
        standing = sum(1 for d in self.devices if d.idle and d.profile.name == name)
        profile = self.gpu.profile(name)
        return standing + (self.layout.capacity(profile) if self.cuttable and profile is not None else 0)

    def total(self, name: ProfileName) -> int:
        """How many leases of this profile this GPU could ever serve at once, nothing else being on it."""
        if self.cuttable_when_empty:
            profile = self.gpu.profile(name)
            return Layout(self.gpu).capacity(profile) if profile is not None else 0
        return sum(1 for d in self.devices if d.profile.name == name)

    def without(self, mask: int, engines: Engines) -> GPUState:
        """The same GPU, were these memory slices and engines taken."""
        devices = tuple(replace(d, idle=d.idle and not d.placement.mask & mask) for d in self.devices)
        layout = Layout(self.gpu, self.layout.mask | mask, self.layout.engines + engines)
        return replace(self, layout=layout, devices=devices)

    @property
    def cuttable(self) -> bool:
        """Whether an instance can be made on free memory slices now."""
        return self.cuttable_when_empty and (self.mig_enabled is True or (self.layout.empty and not self.busy))

    @property
    def cuttable_when_empty(self) -> bool:
        return self.dynamic and self.mig_enabled is not None and bool(self.gpu.profiles)

    @property
    def can_be_whole(self) -> bool:
        """Whether this GPU could ever be leased uncut."""
        return self.dynamic or self.mig_enabled is not True

    @property
    def whole_free(self) -> bool:
        return self.unavailable is None and self.can_be_whole and self.layout.empty and not self.busy


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request is served.

    Attributes:
        profile: None for a whole GPU.
        device_uuid: of the standing MIG device or uncut GPU; None when the device has still to be made.
        cut: whether the agent makes the instance for this lease, and destroys it afterwards.
    """

    node: str
    gpu: GPU
    placement: Placement
    profile: Profile | None
    device_uuid: str | None
    cut: bool

    @property
    def share(self) -> float:
        """The part of the GPU's memory slices, 0 to 1."""
        return self.placement.size / self.gpu.grid

    @property
    def memory_mib(self) -> int:
        return self.gpu.memory_mib if self.profile is None else self.profile.memory_mib

    @property
    def multiprocessors(self) -> int:
        return self.gpu.multiprocessors if self.profile is None else self.profile.multiprocessors


def profile_names(fleet: Iterable[GPUState]) -> list[ProfileName]:
    """Every profile that some GPU offers or holds, smallest memory first."""
    names = {p.name for state in fleet if state.cuttable_when_empty for p in state.gpu.profiles}
    names |= {d.profile.name for state in fleet for d in state.devices}
    return sorted(names, key=lambda n: (n.memory_gb, n.compute_slices, n.suffix))


def profiles_for(request: Request, fleet: Sequence[GPUState]) -> list[ProfileName]:
    """The profiles that satisfy a request, best first. Empty for a whole GPU.

    A memory request takes plain profiles only: nobody who asked for "12 GB" wants to use up the one media extension.
    """
    match request:
        case SliceRequest(profile):
            return [profile]
        case MemoryRequest(min_memory_gb):
            return [n for n in profile_names(fleet) if not n.suffix and n.memory_gb >= min_memory_gb]
        case DeviceRequest(mig_uuid):
            return [d.profile.name for state in fleet for d in state.devices if d.device_uuid == mig_uuid]
        case WholeRequest():
            return []


def impossible(request: Request, fleet: Sequence[GPUState]) -> str | None:
    """Why no waiting can ever serve this request on this fleet; None if it could be served.

    Nodes that are silent, cordoned or sick count as possible: they may come back.
    """
    if not fleet:
        return None
    match request:
        case WholeRequest():
            if any(state.can_be_whole for state in fleet):
                return None
            return "Every GPU is cut into fixed slices, so none can be had whole. Choose a slice."
        case DeviceRequest(mig_uuid):
            if any(d.device_uuid == mig_uuid for state in fleet for d in state.devices):
                return None
            return (
                f"No device {mig_uuid} stands here. By name only devices can be had that an admin has made; "
                f"ask for the profile instead."
            )
        case SliceRequest() | MemoryRequest():
            if any(state.total(name) for name in profiles_for(request, fleet) for state in fleet):
                return None
            offered = ", ".join(str(n) for n in profile_names(fleet) if not n.suffix) or "none"
            return f"No GPU here offers {request}. Profiles on offer: {offered}."
