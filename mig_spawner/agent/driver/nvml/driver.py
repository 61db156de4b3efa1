"""`NVMLDriver`: the session, the handles of its GPUs, and the changes it makes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import byref
from dataclasses import replace
from pathlib import Path
from typing import Final

import pynvml

from mig_spawner.agent.driver import code
from mig_spawner.agent.driver.base import Activity, Driver, Event, GPUInfo, Instance, Memory, Vitals
from mig_spawner.agent.driver.nvml import reading
from mig_spawner.agent.driver.nvml.activity import Windows
from mig_spawner.agent.driver.nvml.event import EventSet
from mig_spawner.agent.driver.nvml.reading import MIB, Handle
from mig_spawner.domain.gpu import Placement, Profile
from mig_spawner.errors import DeviceInUse, DeviceLost, DeviceNotFound, DriverError, NotSupported

log = logging.getLogger(__name__)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class NVMLDriver(Driver):
    """Reads and cuts the GPUs of this machine.

    Creating and destroying needs root, or read access to the capability node `mig/config`; MIG mode needs root with
    CAP_SYS_ADMIN. Processes of other containers are seen only from the host's PID namespace.

    Args:
        clock: tells how long a measurement has lasted, in seconds.
    """

    def __init__(self, *, boot_id: Path = _BOOT_ID, clock: Callable[[], float] = time.monotonic) -> None:
        self._boot_id = boot_id
        self._handles: dict[str, Handle] = {}
        self._known: dict[str, GPUInfo] = {}
        self._silent: list[str] = []
        self._devices: dict[str, Handle] = {}
        self._events = EventSet()
        self._windows = Windows(clock)
        self._wanted = self._open = False

    def open(self) -> None:
        self._wanted = True
        if self._open:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise DriverError(code.why_no_driver(error.value, str(error))) from error
        self._open = True

    def close(self) -> None:
        self._wanted = False
        self._drop()

    def boot_id(self) -> str:
        try:
            return self._boot_id.read_text("ascii").strip()
        except OSError as error:
            raise DriverError(f"The boot id cannot be read from {self._boot_id}: {error.strerror}.") from error

    def list_gpus(self) -> tuple[GPUInfo, ...]:
        """See the port. A session that the driver has ended (it was unloaded and loaded again) is begun anew."""
        count = self._count()
        self._handles.clear()
        seen: dict[str, GPUInfo] = {}
        silent: list[str] = []
        for index in range(count):
            # A GPU that is lost answers nothing at all, not even its UUID: it is recognised by its absence below.
            try:
                info = self._read(index)
            except DriverError as error:
                silent.append(str(error))
                continue
            seen[info.gpu_uuid] = info
            if not info.problem:
                self._known[info.gpu_uuid] = info
        if silent != self._silent:
            log.warning("GPUs that do not say who they are: %s", " ".join(silent) or "none any more")
        self._silent = silent
        problem = " ".join(["The GPU does not answer any more.", *silent])
        missing = (replace(i, mig_enabled=None, problem=problem) for u, i in self._known.items() if u not in seen)
        return (*seen.values(), *missing)

    def list_profiles(self, gpu_uuid: str) -> tuple[Profile, ...]:
        gpu = self._handle(gpu_uuid)
        memory_mib = self._known[gpu_uuid].memory_mib
        found = (
            code.profile(info, reading.placements(gpu, info.profile_id), memory_mib)
            for info in reading.profile_infos(gpu)
        )
        return tuple(profile for profile in found if profile is not None)

    def list_instances(self, gpu_uuid: str) -> tuple[Instance, ...]:
        gpu = self._handle(gpu_uuid)
        if not reading.mig_enabled(gpu):
            return ()
        return tuple(
            reading.read_instance(gpu_uuid, handle, info.slice_count)
            for info in reading.profile_infos(gpu)
            for handle in reading.listed(
                pynvml.nvmlDeviceGetGpuInstances, pynvml.c_nvmlGpuInstance_t, gpu, info.profile_id
            )
        )

    def processes(self, gpu_uuid: str, device_uuid: str) -> int:
        device = self._device(gpu_uuid, device_uuid)
        doing = f"reading the processes on {device_uuid}"
        pids = reading.pids(device, reading.PROCESSES[0], doing)
        for more in reading.PROCESSES[1:]:
            with suppress(NotSupported):
                pids |= reading.pids(device, more, doing)
        return len(pids)

    def memory(self, gpu_uuid: str, device_uuid: str) -> Memory:
        device = self._device(gpu_uuid, device_uuid)
        with reading.translated(f"reading the memory of {device_uuid}"):
            info = pynvml.nvmlDeviceGetMemoryInfo(device)
        return Memory(int(info.used) // MIB, int(info.total) // MIB)

    def vitals(self, gpu_uuid: str) -> Vitals:
        return reading.vitals(self._handle(gpu_uuid))

    def events(self) -> tuple[Event, ...]:
        return self._events.take(self._handles)

    def activity(self, gpu_uuid: str) -> Mapping[int, Activity]:
        if not self._windows.measures(self._handle(gpu_uuid)):
            return {}
        devices = {i.gpu_instance_id: i.mig_uuid for i in self.list_instances(gpu_uuid) if i.mig_uuid is not None}
        return self._windows.read(gpu_uuid, self._handle(gpu_uuid), devices)

    def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
        gpu = self._handle(gpu_uuid)
        info = next((i for i in reading.profile_infos(gpu) if i.profile_id == profile_id), None)
        if info is None or (start, size) not in reading.placements(gpu, profile_id):
            raise NotSupported(f"GPU {gpu_uuid} has no profile {profile_id} at {start}:{size}.")
        with reading.translated(f"creating a GPU instance of profile {profile_id} at {start}:{size} on {gpu_uuid}"):
            placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
            made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile_id, byref(placement))
        try:
            with reading.translated(f"creating the compute instance at {start}:{size} on {gpu_uuid}"):
                pynvml.nvmlGpuInstanceCreateComputeInstance(made, reading.filling_profile(made, info.slice_count))
            instance = reading.read_instance(gpu_uuid, made, info.slice_count)
            if instance.placement != Placement(gpu_uuid, start, size) or instance.mig_uuid is None:
                raise DriverError(f"Asked for {start}:{size} on {gpu_uuid}, the driver made {instance}.")
        except DriverError:
            with suppress(DriverError):  # then it stays half-made, and is found as such
                reading.tear_down(made)
            raise
        return instance

    def destroy(self, instance: Instance) -> None:
        gpu = self._handle(instance.gpu_uuid)
        place = f"GPU instance {instance.gpu_instance_id} of {instance.gpu_uuid}"
        handle = reading.find_instance(gpu, instance)
        if handle is None:
            raise DeviceNotFound(f"{place} is gone, or another one now.")
        with reading.translated(f"reading {place}"):
            devices = {reading.mig_uuid_of(compute) for compute, _ in reading.compute_instances(handle)}
        # Ids and places come back, and half-made ones get finished: only what was seen is destroyed, or what is left of it.
        if devices and instance.mig_uuid not in devices:
            raise DeviceNotFound(f"{place} holds another MIG device now.")
        self._windows.end(instance.gpu_uuid, instance.gpu_instance_id)
        try:
            reading.tear_down(handle)
        except DeviceInUse as error:
            raise DeviceInUse(f"{error} {reading.holders(gpu, instance.gpu_instance_id)}") from error
        if reading.find_instance(gpu, instance) is not None:
            raise DeviceInUse(f"The driver says it destroyed {place}, and still lists it. A monitor may hold it open.")

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        gpu = self._handle(gpu_uuid)
        doing = f"switching MIG mode {'on' if enabled else 'off'} on {gpu_uuid}"
        with reading.translated(doing):
            status = int(pynvml.nvmlDeviceSetMigMode(gpu, int(enabled)))
        # It may have been unbound and bound again meanwhile, so its handle is not taken for granted.
        if status == pynvml.NVML_SUCCESS and reading.mig_enabled(self._handle(gpu_uuid)) is enabled:
            return
        # Ampere keeps the wish for its next reset. Nobody wants it by then, so it is taken back.
        with suppress(DriverError, pynvml.NVMLError):
            pynvml.nvmlDeviceSetMigMode(self._handle(gpu_uuid), int(not enabled))
        if status == code.IN_USE:
            held = reading.holders(self._handle(gpu_uuid))
            raise DeviceInUse(f"{reading.error_of(status, doing)} {held}")
        if status != pynvml.NVML_SUCCESS:
            raise reading.error_of(status, doing)
        raise DeviceInUse(f"MIG mode of {gpu_uuid} would change with its next reset only. Reset it, or boot the node.")

    def _drop(self) -> None:
        self._handles.clear()
        self._devices.clear()
        self._events.forget()
        self._windows.forget()
        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _count(self) -> int:
        with suppress(pynvml.NVMLError):
            return int(pynvml.nvmlDeviceGetCount())
        if self._wanted:
            self._drop()
            self.open()
        with reading.translated("counting the GPUs"):
            return int(pynvml.nvmlDeviceGetCount())

    def _handle(self, gpu_uuid: str) -> Handle:
        if not self._is_current(gpu_uuid):
            self.list_gpus()
        if gpu_uuid not in self._handles:
            kind = DeviceLost if gpu_uuid in self._known else DeviceNotFound
            raise kind(f"There is no GPU {gpu_uuid}, or it does not answer any more.")
        return self._handles[gpu_uuid]

    def _device(self, gpu_uuid: str, device_uuid: str) -> Handle:
        """The handle of a MIG device, or of the uncut GPU. The one that was found last is asked who it is, like that of a GPU."""
        gpu = self._handle(gpu_uuid)
        if device_uuid == gpu_uuid:
            return gpu
        with suppress(KeyError, pynvml.NVMLError):
            known = self._devices[device_uuid]
            if code.text(pynvml.nvmlDeviceGetUUID(known)) == device_uuid:
                return known
        self._devices[device_uuid] = found = reading.mig_device(gpu, device_uuid)
        return found

    def _is_current(self, gpu_uuid: str) -> bool:
        """Whether the handle we have is still that of the GPU: indices change when one is unbound, and handles with them."""
        try:
            return bool(code.text(pynvml.nvmlDeviceGetUUID(self._handles[gpu_uuid])) == gpu_uuid)
        except (KeyError, pynvml.NVMLError):
            return False

    def _read(self, index: int) -> GPUInfo:
        with reading.translated(f"reading GPU {index}"):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = code.text(pynvml.nvmlDeviceGetUUID(handle))
        try:
            with reading.translated(f"reading {uuid}"):
                info = GPUInfo(
                    gpu_uuid=uuid,
                    model=code.decoded(lambda: pynvml.nvmlDeviceGetName(handle)) or "unknown",
                    memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB,
                    multiprocessors=reading.multiprocessors(handle),
                    mig_enabled=reading.mig_enabled(handle),
                    pci_device_id=reading.pci_device_id(handle),
                )
        except DriverError as error:
            known = self._known.get(uuid, GPUInfo(uuid, "unknown", 0, 0, None))
            return replace(known, mig_enabled=None, problem=str(error))
        self._handles[uuid] = handle
        return info
