"""The driver of real GPUs, through NVML. The only file that knows pynvml.

Traps that shape it (see "NVML" in NVIDIA's header and the pynvml wheel):

- Two numbers name a profile: a constant that *asks* (0, 1, 2 …, with gaps) and an id that *creates*. Only ids leave this file.
- `NVMLError` cannot be hashed and compares badly, so errors are told apart by `.value`.
- `nvmlDeviceSetMigMode` raises nothing when the GPU is in use: the reason is its return value.
- MIG indices have holes: "not found" means the next one.
- Old wheels and drivers answer bytes where new ones answer text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pynvml

from mig_spawner.agent.driver import code
from mig_spawner.agent.driver.base import Driver, GPUInfo, Instance
from mig_spawner.domain.gpu import Engines, Placement, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import (
    DeviceInUse,
    DeviceLost,
    DeviceNotFound,
    DriverError,
    InvalidProfile,
    InvalidRequest,
    NotSupported,
)

log = logging.getLogger(__name__)

Handle = Any
"""An opaque handle of NVML."""

_MIB: Final = 1024 * 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_CONSTANT: Final = 64
"""Enumerations end at "invalid argument"; this only guards against a library that never says so."""
_MAX_INSTANCES: Final = 64


@dataclass(frozen=True, slots=True)
class _ProfileInfo:
    """What NVML says of a GPU instance profile. `name` is empty for drivers before 530."""

    constant: int
    profile_id: int
    slice_count: int
    name: str
    raw: Any


class NVMLDriver(Driver):
    """Reads and cuts the GPUs of this machine.

    Creating and destroying needs root, or read access to the capability node `mig/config`; MIG mode needs root with
    CAP_SYS_ADMIN. Processes of other containers are seen only from the host's PID namespace.
    """

    def __init__(self, *, boot_id: Path = _BOOT_ID) -> None:
        self._boot_id = boot_id
        self._handles: dict[str, Handle] = {}
        self._known: dict[str, GPUInfo] = {}
        self._open = False

    def open(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise DriverError(code.why_no_driver(error.value, str(error))) from error
        self._open = True

    def close(self) -> None:
        self._handles.clear()
        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def boot_id(self) -> str:
        try:
            return self._boot_id.read_text("ascii").strip()
        except OSError as error:
            raise DriverError(f"The boot id cannot be read from {self._boot_id}: {error.strerror}.") from error

    def list_gpus(self) -> tuple[GPUInfo, ...]:
        with _translated("counting the GPUs"):
            count = int(pynvml.nvmlDeviceGetCount())
        seen: dict[str, GPUInfo] = {}
        for index in range(count):
            # A GPU that is lost answers nothing at all, not even its UUID: it is recognised by its absence below.
            with suppress(DriverError):
                info = self._read(index)
                seen[info.gpu_uuid] = self._known[info.gpu_uuid] = info
        missing = (
            replace(info, mig_enabled=None, problem="The GPU does not answer any more.")
            for uuid, info in self._known.items()
            if uuid not in seen
        )
        return (*seen.values(), *missing)

    def list_profiles(self, gpu_uuid: str) -> tuple[Profile, ...]:
        gpu = self._handle(gpu_uuid)
        memory_mib = self._known[gpu_uuid].memory_mib
        found = (self._profile(gpu, info, memory_mib) for info in _profile_infos(gpu))
        return tuple(profile for profile in found if profile is not None)

    def list_instances(self, gpu_uuid: str) -> tuple[Instance, ...]:
        gpu = self._handle(gpu_uuid)
        if not _mig_enabled(gpu):
            return ()
        return tuple(
            _instance(gpu_uuid, handle, info.slice_count)
            for info in _profile_infos(gpu)
            for handle in _listed(pynvml.nvmlDeviceGetGpuInstances, pynvml.c_nvmlGpuInstance_t, gpu, info.profile_id)
        )

    def processes(self, gpu_uuid: str, device_uuid: str) -> int:
        gpu = self._handle(gpu_uuid)
        device = gpu if device_uuid == gpu_uuid else _mig_device(gpu, device_uuid)
        with _translated(f"reading the processes on {device_uuid}"):
            pids = {p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device)}
        for more in (pynvml.nvmlDeviceGetGraphicsRunningProcesses, pynvml.nvmlDeviceGetMPSComputeRunningProcesses):
            with suppress(NotSupported), _translated(f"reading the processes on {device_uuid}"):
                pids |= {p.pid for p in more(device)}
        return len(pids)

    def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
        gpu = self._handle(gpu_uuid)
        info = next((i for i in _profile_infos(gpu) if i.profile_id == profile_id), None)
        if info is None or (start, size) not in _placements(gpu, profile_id):
            raise NotSupported(f"GPU {gpu_uuid} has no profile {profile_id} at {start}:{size}.")
        with _translated(f"creating a GPU instance of profile {profile_id} at {start}:{size} on {gpu_uuid}"):
            placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
            made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile_id, byref(placement))
        try:
            with _translated(f"creating the compute instance at {start}:{size} on {gpu_uuid}"):
                pynvml.nvmlGpuInstanceCreateComputeInstance(made, _filling_profile(made, info.slice_count))
            instance = _instance(gpu_uuid, made, info.slice_count)
            if instance.placement != Placement(gpu_uuid, start, size) or instance.mig_uuid is None:
                raise DriverError(f"Asked for {start}:{size} on {gpu_uuid}, the driver made {instance}.")
        except DriverError:
            with suppress(DriverError):  # then it stays half-made, and is found as such
                _tear_down(made)
            raise
        return instance

    def destroy(self, instance: Instance) -> None:
        gpu = self._handle(instance.gpu_uuid)
        with _translated(f"finding GPU instance {instance.gpu_instance_id} on {instance.gpu_uuid}"):
            handle = pynvml.nvmlDeviceGetGpuInstanceById(gpu, instance.gpu_instance_id)
            info = pynvml.nvmlGpuInstanceGetInfo(handle)
        found = (info.profileId, info.placement.start, info.placement.size)
        if found != (instance.profile_id, instance.start, instance.size):
            raise DeviceNotFound(f"GPU instance {instance.gpu_instance_id} of {instance.gpu_uuid} is another one now.")
        _tear_down(handle)

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        gpu = self._handle(gpu_uuid)
        doing = f"switching MIG mode {'on' if enabled else 'off'} on {gpu_uuid}"
        with _translated(doing):
            status = int(pynvml.nvmlDeviceSetMigMode(gpu, int(enabled)))
        # The device may have been unbound and bound again: every handle is read anew from here on.
        self._handles.clear()
        if status != pynvml.NVML_SUCCESS:
            raise _error(status, doing)
        if _mig_enabled(self._handle(gpu_uuid)) is not enabled:
            raise DeviceInUse(f"MIG mode of {gpu_uuid} changes with its next reset. Reset it, or boot the node.")

    def _handle(self, gpu_uuid: str) -> Handle:
        if gpu_uuid not in self._handles:
            self.list_gpus()
        if gpu_uuid not in self._handles:
            kind = DeviceLost if gpu_uuid in self._known else DeviceNotFound
            raise kind(f"There is no GPU {gpu_uuid}, or it does not answer any more.")
        return self._handles[gpu_uuid]

    def _read(self, index: int) -> GPUInfo:
        with _translated(f"reading GPU {index}"):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            info = GPUInfo(
                gpu_uuid=uuid,
                model=_text(pynvml.nvmlDeviceGetName(handle)),
                memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
                multiprocessors=_multiprocessors(handle),
                mig_enabled=_mig_enabled(handle),
            )
        self._handles[uuid] = handle
        return info

    def _profile(self, gpu: Handle, info: _ProfileInfo, memory_mib: int) -> Profile | None:
        placements = _placements(gpu, info.profile_id)
        raw = info.raw
        try:
            return Profile(
                name=ProfileName.parse(
                    info.name or code.computed_name(info.constant, info.slice_count, int(raw.memorySizeMB), memory_mib)
                ),
                profile_id=info.profile_id,
                size=placements[0][1] if placements else 0,
                starts=tuple(sorted(start for start, _ in placements)),
                compute_slices=info.slice_count,
                memory_mib=int(raw.memorySizeMB),
                multiprocessors=int(raw.multiprocessorCount),
                engines=Engines(
                    int(raw.copyEngineCount),
                    int(raw.decoderCount),
                    int(raw.encoderCount),
                    int(raw.jpegCount),
                    int(raw.ofaCount),
                ),
            )
        except (InvalidProfile, InvalidRequest) as error:
            log.warning("Profile %s (%r) is left out: %s", info.profile_id, info.name, error)
            return None


# -- reading -----------------------------------------------------------------------------------------------------------


def _profile_infos(gpu: Handle) -> list[_ProfileInfo]:
    """Every profile the GPU has now. Which constants exist is asked, not assumed: newer drivers know more."""
    found = []
    for constant, raw in _enumerated(lambda c, v: pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, c, version=v)):
        name = _text(getattr(raw, "name", "")).removeprefix("MIG ").strip()
        found.append(_ProfileInfo(constant, int(raw.id), int(raw.sliceCount), name, raw))
    return found


def _enumerated(ask: Callable[[int, int], Any]) -> Iterator[tuple[int, Any]]:
    """(constant, answer) until the library says that there are no more. Drivers that do not know version 2 get version 1."""
    version = 2
    for constant in range(_MAX_CONSTANT):
        try:
            try:
                answer = ask(constant, version)
            except pynvml.NVMLError as error:
                if version == 1 or error.value not in (code.FUNCTION_NOT_FOUND, code.VERSION_MISMATCH):
                    raise
                version = 1
                answer = ask(constant, version)
        except pynvml.NVMLError as error:
            if error.value == code.INVALID_ARGUMENT:
                return
            if error.value in (code.NOT_SUPPORTED, code.NOT_FOUND):
                continue
            raise _error(error.value, "listing the profiles") from error
        yield constant, answer


def _placements(gpu: Handle, profile_id: int) -> list[tuple[int, int]]:
    with _translated(f"reading the placements of profile {profile_id}"):
        count = c_uint(0)
        pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, None, byref(count))
        array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        if count.value:
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile_id, array, byref(count))
    return [(int(p.start), int(p.size)) for p in array[: count.value]]


def _listed(call: Callable[..., Any], kind: Any, parent: Handle, profile_id: int) -> list[Handle]:
    # The profile's instanceCount would be the documented size of the array, but an A30 reports it wrongly.
    array = (kind * _MAX_INSTANCES)()
    count = c_uint(_MAX_INSTANCES)
    try:
        with _translated(f"listing the instances of profile {profile_id}"):
            call(parent, profile_id, array, byref(count))
    except NotSupported:
        return []
    return list(array[: count.value])


def _compute_instances(handle: Handle) -> list[tuple[Handle, int]]:
    """Compute instances of a GPU instance, each with its compute slices."""
    engine = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    return [
        (compute, int(profile.sliceCount))
        for _, profile in _enumerated(lambda c, v: ask(handle, c, engine, version=v))
        for compute in _listed(
            pynvml.nvmlGpuInstanceGetComputeInstances, pynvml.c_nvmlComputeInstance_t, handle, int(profile.id)
        )
    ]


def _filling_profile(handle: Handle, slice_count: int) -> int:
    """The id of the compute instance profile that takes all of a GPU instance. It need not have the number one expects: on the
    1g with double memory it is 7, not 0."""
    engine = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    for _, profile in _enumerated(lambda c, v: ask(handle, c, engine, version=v)):
        if int(profile.sliceCount) == slice_count and int(profile.instanceCount) == 1:
            return int(profile.id)
    raise NotSupported(f"No compute instance fills a GPU instance of {slice_count} compute slices.")


def _instance(gpu_uuid: str, handle: Handle, slice_count: int) -> Instance:
    with _translated(f"reading a GPU instance of {gpu_uuid}"):
        info = pynvml.nvmlGpuInstanceGetInfo(handle)
        compute = _compute_instances(handle)
        filling = [c for c, slices in compute if slices == slice_count]
        mig_uuid = (
            _text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(filling[0]).device)) if filling else None
        )
    return Instance(
        gpu_uuid=gpu_uuid,
        gpu_instance_id=int(info.id),
        profile_id=int(info.profileId),
        start=int(info.placement.start),
        size=int(info.placement.size),
        mig_uuid=mig_uuid,
        compute_instances=len(compute),
    )


def _tear_down(handle: Handle) -> None:
    with _translated("destroying a GPU instance"):
        for compute, _ in _compute_instances(handle):
            pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(handle)


def _mig_device(gpu: Handle, mig_uuid: str) -> Handle:
    with _translated(f"finding {mig_uuid}"):
        for index in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))):
            try:
                device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            except pynvml.NVMLError as error:
                if error.value == code.NOT_FOUND:
                    continue
                raise
            if _text(pynvml.nvmlDeviceGetUUID(device)) == mig_uuid:
                return device
    raise DeviceNotFound(f"There is no MIG device {mig_uuid}.")


def _mig_enabled(gpu: Handle) -> bool | None:
    try:
        with _translated("reading the MIG mode"):
            current, _pending = pynvml.nvmlDeviceGetMigMode(gpu)
    except NotSupported:
        return None
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _multiprocessors(gpu: Handle) -> int:
    """SMs of a whole GPU, which NVML gives only as CUDA cores; 0 if it does not."""
    try:
        with _translated("reading the number of cores"):
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
            return code.multiprocessors(int(pynvml.nvmlDeviceGetNumGpuCores(gpu)), (int(major), int(minor)))
    except NotSupported:
        return 0


# -- errors and text ---------------------------------------------------------------------------------------------------


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Errors of NVML become ours."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise _error(error.value, doing) from error


def _error(value: int, doing: str) -> DriverError:
    return code.error_of(value, str(pynvml.NVMLError(value)), doing)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
