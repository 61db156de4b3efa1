"""One simulated GPU, with the habits of NVML that surprise.

What it reproduces, each seen on hardware or in NVML's header: MIG indices with holes; a GPU instance that cannot go
before its compute instance, which cannot go before its processes; one and the same error for "overlaps" and "no engines
left"; GPU instance ids that say nothing about the placement; a MIG UUID that comes back when the same place is cut
again; a mode change that resets an Ampere GPU and stays pending while it has clients.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mig_spawner.domain.gpu import GPU, Layout, Placement, Profile
from mig_spawner.errors import DeviceInUse, DeviceLost, DeviceNotFound, InsufficientResources, NotSupported
from mig_spawner.testing.gpu.model import Model, find_model
from mig_spawner.testing.gpu.state import BoardState, InstanceState

_NAMESPACE: Final = uuid.UUID("6a0f8c52-6a53-5d0e-9d5e-2f6f2a8c7d11")


def stable_uuid(*parts: object) -> uuid.UUID:
    """The same UUID (version 5) for the same parts, always."""
    return uuid.uuid5(_NAMESPACE, "/".join(str(p) for p in parts))


@lru_cache(maxsize=256)
def _gpu(model: str, gpu_uuid: str) -> GPU:
    return find_model(model).gpu(gpu_uuid)


@dataclass(frozen=True, slots=True)
class SimulatedInstance:
    """A GPU instance as it was when read.

    Attributes:
        mig_uuid: of its MIG device; None while it has no compute instance. Likewise `device_index`.
        processes: on it; None for "cannot be read".
    """

    gpu_uuid: str
    gpu_instance_id: int
    profile: Profile
    placement: Placement
    mig_uuid: str | None
    device_index: int | None
    processes: int | None


@dataclass(frozen=True, slots=True)
class Busyness:
    """How busy a MIG device is, parts of 1."""

    gpu_instance_id: int
    mig_uuid: str
    sm: float
    tensor: float
    dram: float


class Board:
    """The behaviour of one GPU over its state, which it changes in place. A call that raises has changed nothing."""

    def __init__(self, state: BoardState) -> None:
        self.state = state
        self.model: Model = find_model(state.model)
        self.gpu: GPU = _gpu(state.model, state.gpu_uuid)

    @property
    def busy(self) -> bool:
        """Whether anything may run on it; what cannot be read may run."""
        return self.state.processes != 0 or any(i.processes != 0 for i in self.state.instances)

    def profiles(self) -> tuple[Profile, ...]:
        """What it can be cut into. An old driver says nothing while MIG mode is off."""
        self.answer()
        if self.state.profiles_need_mig and not self.state.mig_enabled:
            return ()
        return self.gpu.profiles

    def instances(self) -> tuple[SimulatedInstance, ...]:
        """All GPU instances, profile by profile as NVML lists them."""
        self.answer()
        self._need_mig_mode()
        order = {p.profile_id: n for n, p in enumerate(self.gpu.profiles)}
        return tuple(self._view(i) for i in sorted(self.state.instances, key=lambda i: (order[i.profile_id], i.start)))

    def mig_device(self, index: int) -> SimulatedInstance:
        """The MIG device with this index. Indices have holes; `DeviceNotFound` means "skip", not "the end"."""
        self.answer()
        self._need_mig_mode()
        found = next((i for i in self.state.instances if i.device_index == index), None)
        if found is None:
            raise DeviceNotFound(f"GPU {self.gpu.gpu_uuid} has no MIG device {index}.")
        return self._view(found)

    def create_gpu_instance(self, profile_id: int, start: int, size: int) -> SimulatedInstance:
        self.answer()
        self._need_mig_mode()
        profile = self.gpu.profile_by_id(profile_id)
        if profile is None or start not in profile.starts or size != profile.size:
            raise NotSupported(f"{self.gpu.model} has no profile {profile_id} at {start}:{size}.")
        if start not in self.layout().starts(profile):
            raise InsufficientResources(
                f"There is no room for {profile.name} at {start}:{size} on {self.gpu.gpu_uuid}."
            )
        instance = InstanceState(
            gpu_instance_id=self._free_instance_id(profile), profile_id=profile_id, start=start, size=size
        )
        self.state.instances.append(instance)
        return self._view(instance)

    def create_compute_instance(self, gpu_instance_id: int) -> SimulatedInstance:
        """The compute instance that fills a GPU instance; with it the MIG device appears."""
        self.answer()
        instance = self._find(gpu_instance_id)
        if instance.device_index is not None:
            raise InsufficientResources(f"GPU instance {gpu_instance_id} has its compute instance already.")
        taken = {i.device_index for i in self.state.instances}
        instance.device_index = next(n for n in range(len(taken) + 1) if n not in taken)
        return self._view(instance)

    def destroy_compute_instance(self, gpu_instance_id: int) -> None:
        self.answer()
        instance = self._find(gpu_instance_id)
        if instance.device_index is None:
            raise DeviceNotFound(f"GPU instance {gpu_instance_id} has no compute instance.")
        if instance.processes != 0:
            raise DeviceInUse(f"A process runs on GPU instance {gpu_instance_id} of {self.gpu.gpu_uuid}.")
        instance.device_index = None

    def destroy_gpu_instance(self, gpu_instance_id: int) -> None:
        self.answer()
        instance = self._find(gpu_instance_id)
        if instance.device_index is not None:
            raise DeviceInUse(f"GPU instance {gpu_instance_id} still has a compute instance.")
        self.state.instances.remove(instance)

    def set_mig_mode(self, enabled: bool) -> None:
        """Switch MIG mode.

        An Ampere GPU is reset by it; with clients on it the change stays pending and comes with the next reset, as it does there.

        Raises:
            DeviceInUse: instances, or processes on the uncut GPU.
        """
        self.answer()
        if enabled == self.state.mig_enabled:
            self.state.mig_pending = enabled
            return
        if self.state.instances or self.busy:
            if self.model.ampere:
                self.state.mig_pending = enabled
            raise DeviceInUse(f"{self.gpu.gpu_uuid} has clients or instances, so its MIG mode cannot change now.")
        self.state.mig_enabled = self.state.mig_pending = enabled
        if self.model.ampere:
            self.reset()

    def reset(self) -> None:
        """A GPU reset: instances and processes are gone, a pending mode is now the mode."""
        self.state.instances.clear()
        self.state.processes = 0
        self.state.memory_errors = 0
        self.state.remap_pending = False
        if self.state.recovery == "reset":
            self.state.recovery = None
        self.state.mig_enabled = self.state.mig_pending
        self.state.resets += 1

    def reboot(self) -> None:
        """The node booted: as a reset; a lost GPU is back; only Ampere remembers its MIG mode."""
        self.state.lost, self.state.recovery = False, None
        if not self.model.ampere:
            self.state.mig_pending = False
        self.reset()

    def has_device(self, device_uuid: str) -> bool:
        return any(i.device_index is not None and self._mig_uuid(i) == device_uuid for i in self.state.instances)

    def set_processes(self, device_uuid: str, count: int | None) -> None:
        """Say how many processes run on the uncut GPU or on a MIG device; None for "cannot be read"."""
        if device_uuid == self.gpu.gpu_uuid:
            self.state.processes = count
            return
        self._by_uuid(device_uuid).processes = count

    def processes(self, device_uuid: str) -> int | None:
        self.answer()
        return self.state.processes if device_uuid == self.gpu.gpu_uuid else self._by_uuid(device_uuid).processes

    def memory(self, device_uuid: str) -> tuple[int, int]:
        """Used and total MiB of a MIG device, or of the uncut GPU."""
        self.answer()
        if device_uuid == self.gpu.gpu_uuid:
            return self.state.memory_used_mib, self.gpu.memory_mib
        instance = self._by_uuid(device_uuid)
        return instance.memory_used_mib, self._profile(instance).memory_mib

    def set_usage(self, device_uuid: str, *, memory_mib: int, sm: float, tensor: float, dram: float) -> None:
        """So much memory a device uses, and so busy it is."""
        if device_uuid == self.gpu.gpu_uuid:
            self.state.memory_used_mib = memory_mib
            return
        instance = self._by_uuid(device_uuid)
        instance.memory_used_mib = memory_mib
        instance.sm, instance.tensor, instance.dram = sm, tensor, dram

    def busyness(self) -> tuple[Busyness, ...]:
        """How busy each MIG device is; nothing from an Ampere GPU, which does not measure it."""
        self.answer()
        if self.model.ampere:
            return ()
        return tuple(
            Busyness(i.gpu_instance_id, self._mig_uuid(i), i.sm, i.tensor, i.dram)
            for i in self.state.instances
            if i.device_index is not None
        )

    def layout(self) -> Layout:
        """What is taken on it."""
        layout = Layout(self.gpu)
        for instance in self.state.instances:
            layout = layout.with_instance(self._profile(instance), instance.start)
        return layout

    def answer(self) -> None:
        """Raise `DeviceLost` if it fell off the bus."""
        if self.state.lost:
            raise DeviceLost(
                f"GPU {self.gpu.gpu_uuid} fell off the bus. Nothing can be done on it until the node boots."
            )

    def _need_mig_mode(self) -> None:
        if not self.state.mig_enabled:
            raise NotSupported(f"MIG mode is off on {self.gpu.gpu_uuid}.")

    def _find(self, gpu_instance_id: int) -> InstanceState:
        found = next((i for i in self.state.instances if i.gpu_instance_id == gpu_instance_id), None)
        if found is None:
            raise DeviceNotFound(f"GPU {self.gpu.gpu_uuid} has no GPU instance {gpu_instance_id}.")
        return found

    def _by_uuid(self, device_uuid: str) -> InstanceState:
        for instance in self.state.instances:
            if instance.device_index is not None and self._mig_uuid(instance) == device_uuid:
                return instance
        raise DeviceNotFound(f"GPU {self.gpu.gpu_uuid} has no MIG device {device_uuid}.")

    def _mig_uuid(self, instance: InstanceState) -> str:
        # A name for a position: it comes back when the same place is cut again, even as another profile of that size.
        return f"MIG-{stable_uuid(self.gpu.gpu_uuid, instance.start, instance.size)}"

    def _profile(self, instance: InstanceState) -> Profile:
        profile = self.gpu.profile_by_id(instance.profile_id)
        if profile is None:
            raise DeviceNotFound(f"{self.gpu.model} has no profile {instance.profile_id}.")
        return profile

    def _free_instance_id(self, profile: Profile) -> int:
        # As the driver numbers: 0 for the whole grid, then a run of ids per size, largest first; within it the lowest
        # that is free. So the id depends on the order of creation, not on the placement.
        sizes = sorted({p.size for p in self.gpu.profiles if p.size > profile.size}, reverse=True)
        first = sum(max(len(p.starts) for p in self.gpu.profiles if p.size == size) for size in sizes)
        taken = {i.gpu_instance_id for i in self.state.instances}
        return next(n for n in range(first, first + len(taken) + 1) if n not in taken)

    def _view(self, instance: InstanceState) -> SimulatedInstance:
        return SimulatedInstance(
            gpu_uuid=self.gpu.gpu_uuid,
            gpu_instance_id=instance.gpu_instance_id,
            profile=self._profile(instance),
            placement=Placement(self.gpu.gpu_uuid, instance.start, instance.size),
            mig_uuid=None if instance.device_index is None else self._mig_uuid(instance),
            device_index=instance.device_index,
            processes=instance.processes,
        )
