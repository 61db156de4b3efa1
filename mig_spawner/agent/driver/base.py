"""The port to the driver of a node's GPUs.

What every adapter promises:

- Calls block, may take seconds, and are made from one thread only, one at a time, within one session (`open` … `close`).
- Values are ours; handles of the driver never leave an adapter and are not kept over a change.
- Every failure is a `mig_spawner.errors.DriverError`, of the most telling kind.
- GPUs are known by `gpu_uuid`. Their order, their indices and the ids of GPU instances mean nothing between two calls.
- A call that raises has changed nothing, with one exception: `create` and `destroy` may leave a GPU instance without compute
  instance behind. `list_instances` shows it with `mig_uuid` None, and `destroy` removes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from mig_spawner.domain.gpu import Placement, Profile


@dataclass(frozen=True, slots=True)
class GPUInfo:
    """A GPU as its driver describes it.

    Attributes:
        memory_mib: total, MiB.
        multiprocessors: SMs of the whole GPU.
        mig_enabled: the mode now; None for a GPU that has no such mode, or that does not answer.
        problem: why it does not answer, a sentence; empty if it does. The other fields are then what was last known.
        pci_device_id: device and vendor as NVIDIA writes them, `0x20B210DE`; empty if that cannot be read.
    """

    gpu_uuid: str
    model: str
    memory_mib: int
    multiprocessors: int
    mig_enabled: bool | None
    problem: str = ""
    pci_device_id: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance that exists.

    Attributes:
        gpu_instance_id: the driver's number. It is free again after destroy, and says nothing about the placement.
        start, size: the placement in memory slices, as read from the driver.
        mig_uuid: of the MIG device whose compute instance fills it; None without one. It may come back after destroy and create.
        compute_instances: how many it has. None of them: it is half-made. Several, or one that does not fill it: an admin has cut
            it further, and nobody but the admin may touch it.
    """

    gpu_uuid: str
    gpu_instance_id: int
    profile_id: int
    start: int
    size: int
    mig_uuid: str | None
    compute_instances: int

    @property
    def half_made(self) -> bool:
        return self.compute_instances == 0

    @property
    def placement(self) -> Placement:
        return Placement(self.gpu_uuid, self.start, self.size)


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a MIG device or an uncut GPU, MiB. An idle device uses a little."""

    used_mib: int
    total_mib: int


@dataclass(frozen=True, slots=True)
class Activity:
    """How busy a GPU instance was, parts of 1; None where there is no figure, which is not 0.

    Attributes:
        sm: of its SMs, those with work.
        tensor: of the time, that with tensor cores at work.
        dram: of its memory bandwidth.
    """

    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None


class Recovery(StrEnum):
    """What a GPU needs to be well again, as its driver says. It says so until that is done, whoever was listening when it broke."""

    RESET = "reset"
    BOOT = "boot"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a GPU says of its own health. None where it does not say.

    Attributes:
        memory_errors: that ECC could not correct, since its last reset.
        remap_pending: a faulty row of its memory is replaced with the next reset.
        remap_failed: a faulty row could not be replaced.
        mode_pending: the MIG mode after the next reset, if that is another than now.
        recovery: what it needs to be well again, if it needs something.
    """

    memory_errors: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    mode_pending: bool | None = None
    recovery: Recovery | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A critical error that the driver announced.

    Attributes:
        xid: NVIDIA's number for it.
        gpu_instance_id: None if it concerns the whole GPU.
    """

    gpu_uuid: str
    xid: int
    gpu_instance_id: int | None = None


class Driver(ABC):
    """What an agent asks of a driver. See the module for what holds for every call."""

    @abstractmethod
    def open(self) -> None:
        """Begin the session; harmless within one. Raises `DriverError` with a sentence for the admin if there is no usable driver."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the driver. Harmless without a session. A held session blocks a GPU reset by others."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def boot_id(self) -> str:
        """A text that changes when the node boots; GPU instances do not survive that."""

    @abstractmethod
    def list_gpus(self) -> tuple[GPUInfo, ...]:
        """All GPUs, with and without MIG. One that stopped answering is in it with a `problem`, not left out and not raised."""

    @abstractmethod
    def list_profiles(self, gpu_uuid: str) -> tuple[Profile, ...]:
        """What the GPU can be cut into, with placements as the driver gives them. Empty for a GPU without MIG, and for old
        drivers while MIG mode is off."""

    @abstractmethod
    def list_instances(self, gpu_uuid: str) -> tuple[Instance, ...]:
        """Every GPU instance, whoever made it, half-made ones too. Empty while MIG mode is off."""

    @abstractmethod
    def processes(self, gpu_uuid: str, device_uuid: str) -> int:
        """How many processes run on a MIG device, or on the uncut GPU if `device_uuid` is its own. Raises if that is not known:
        unknown is not idle."""

    @abstractmethod
    def memory(self, gpu_uuid: str, device_uuid: str) -> Memory:
        """The memory of a MIG device, or of the uncut GPU if `device_uuid` is its own. Raises if that is not known."""

    @abstractmethod
    def vitals(self, gpu_uuid: str) -> Vitals:
        """The health of a GPU as it counts it itself. Raises only if the GPU does not answer."""

    @abstractmethod
    def events(self) -> tuple[Event, ...]:
        """What was announced since the last call in this session, oldest first; without waiting, and each event once. The first
        call begins to listen to the GPUs that `list_gpus` has shown. Drivers that announce nothing have none."""

    @abstractmethod
    def activity(self, gpu_uuid: str) -> Mapping[int, Activity]:
        """How busy each GPU instance was between this call and the last one, by its id. Without those that were not there the last
        time, and empty for GPUs that do not measure it (before Hopper)."""

    @abstractmethod
    def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
        """Make a GPU instance at exactly this placement, and the compute instance that fills it.

        If the compute instance cannot be made, the GPU instance is destroyed again before this raises, if that is possible.

        Raises:
            InsufficientResources: the placement overlaps another instance, or the engines are used up.
            NotSupported: MIG mode is off, or the GPU has no such profile or placement.
        """

    @abstractmethod
    def destroy(self, instance: Instance) -> None:
        """Destroy the compute instances of a GPU instance, then itself.

        The instance is read again first: if its id now belongs to another profile, placement or MIG device, nothing is touched.

        Raises:
            DeviceNotFound: it is gone already, or something else has its id.
            DeviceInUse: a process runs on it, or the driver has not let go of it yet (then it may be half-made now). Try again later.
        """

    @abstractmethod
    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        """Switch MIG mode of an idle, empty GPU. On Ampere that resets it. UUIDs stay, handles and indices may not.

        A change that cannot be had now is taken back, so that it does not happen with a reset that somebody else wants.

        Raises:
            DeviceInUse: it has clients or instances, or needs a reset that cannot be had now.
            NotSupported: it has no MIG mode.
        """
