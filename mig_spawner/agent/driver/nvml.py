"""The driver of real GPUs, through NVML. The only file that knows pynvml.

Traps that shape it (see "NVML" in NVIDIA's header and the pynvml wheel):

- Two numbers name a profile: a constant that *asks* (0, 1, 2 …, with gaps) and an id that *creates*. Only ids leave this file.
- `NVMLError` cannot be hashed and compares badly, so errors are told apart by `.value`.
- `nvmlDeviceSetMigMode` raises nothing when the GPU is in use: the reason is its return value.
- MIG indices have holes: "not found" means the next one.
- A handle means what sits in its place *now*; so a GPU's is asked for its UUID before it is used.
- Old wheels answer bytes where new ones answer text, and new ones raise `UnicodeDecodeError` for a text that is none.
- A function without a version in its name raises something that is no `NVMLError` if the driver is older than the wheel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pynvml

from mig_spawner.agent.driver import code
from mig_spawner.agent.driver.base import Driver, GPUInfo, Instance
from mig_spawner.domain.gpu import Placement, Profile
from mig_spawner.errors import DeviceInUse, DeviceLost, DeviceNotFound, DriverError, NotSupported

log = logging.getLogger(__name__)

Handle = Any
"""An opaque handle of NVML."""

_MIB: Final = 1024 * 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_CONSTANT: Final = 64
"""Enumerations end at "invalid argument"; this only guards against a library that never says so."""
_MAX_INSTANCES: Final = 64
_PROCESSES: Final = ("nvmlDeviceGetCompute", "nvmlDeviceGetGraphics", "nvmlDeviceGetMPSCompute")
"""Calls that list processes, without "RunningProcesses" and their version."""


class NVMLDriver(Driver):
    """Reads and cuts the GPUs of this machine.

    Creating and destroying needs root, or read access to the capability node `mig/config`; MIG mode needs root with
    CAP_SYS_ADMIN. Processes of other containers are seen only from the host's PID namespace.
    """

    def __init__(self, *, boot_id: Path = _BOOT_ID) -> None:
        self._boot_id = boot_id
        self._handles: dict[str, Handle] = {}
        self._known: dict[str, GPUInfo] = {}
        self._silent: list[str] = []
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
        found = (code.profile(info, _placements(gpu, info.profile_id), memory_mib) for info in _profile_infos(gpu))
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
        doing = f"reading the processes on {device_uuid}"
        pids = _pids(device, _PROCESSES[0], doing)
        for more in _PROCESSES[1:]:
            with suppress(NotSupported):
                pids |= _pids(device, more, doing)
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
        place = f"GPU instance {instance.gpu_instance_id} of {instance.gpu_uuid}"
        handle = _find(gpu, instance)
        if handle is None:
            raise DeviceNotFound(f"{place} is gone, or another one now.")
        with _translated(f"reading {place}"):
            devices = {_mig_uuid(compute) for compute, _ in _compute_instances(handle)}
        # Ids and places come back, and half-made ones get finished: only what was seen is destroyed, or what is left of it.
        if devices and instance.mig_uuid not in devices:
            raise DeviceNotFound(f"{place} holds another MIG device now.")
        _tear_down(handle)
        if _find(gpu, instance) is not None:
            raise DeviceInUse(f"The driver says it destroyed {place}, and still lists it. A monitor may hold it open.")

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        gpu = self._handle(gpu_uuid)
        doing = f"switching MIG mode {'on' if enabled else 'off'} on {gpu_uuid}"
        with _translated(doing):
            status = int(pynvml.nvmlDeviceSetMigMode(gpu, int(enabled)))
        # It may have been unbound and bound again meanwhile, so its handle is not taken for granted.
        if status == pynvml.NVML_SUCCESS and _mig_enabled(self._handle(gpu_uuid)) is enabled:
            return
        # Ampere keeps the wish for its next reset. Nobody wants it by then, so it is taken back.
        with suppress(DriverError, pynvml.NVMLError):
            pynvml.nvmlDeviceSetMigMode(self._handle(gpu_uuid), int(not enabled))
        if status != pynvml.NVML_SUCCESS:
            raise _error(status, doing)
        raise DeviceInUse(f"MIG mode of {gpu_uuid} would change with its next reset only. Reset it, or boot the node.")

    def _drop(self) -> None:
        self._handles.clear()
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
        with _translated("counting the GPUs"):
            return int(pynvml.nvmlDeviceGetCount())

    def _handle(self, gpu_uuid: str) -> Handle:
        if not self._is_current(gpu_uuid):
            self.list_gpus()
        if gpu_uuid not in self._handles:
            kind = DeviceLost if gpu_uuid in self._known else DeviceNotFound
            raise kind(f"There is no GPU {gpu_uuid}, or it does not answer any more.")
        return self._handles[gpu_uuid]

    def _is_current(self, gpu_uuid: str) -> bool:
        """Whether the handle we have is still that of the GPU: indices change when one is unbound, and handles with them."""
        try:
            return bool(code.text(pynvml.nvmlDeviceGetUUID(self._handles[gpu_uuid])) == gpu_uuid)
        except (KeyError, pynvml.NVMLError):
            return False

    def _read(self, index: int) -> GPUInfo:
        with _translated(f"reading GPU {index}"):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = code.text(pynvml.nvmlDeviceGetUUID(handle))
        try:
            with _translated(f"reading {uuid}"):
                info = GPUInfo(
                    gpu_uuid=uuid,
                    model=code.decoded(lambda: pynvml.nvmlDeviceGetName(handle)) or "unknown",
                    memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
                    multiprocessors=_multiprocessors(handle),
                    mig_enabled=_mig_enabled(handle),
                )
        except DriverError as error:
            known = self._known.get(uuid, GPUInfo(uuid, "unknown", 0, 0, None))
            return replace(known, mig_enabled=None, problem=str(error))
        self._handles[uuid] = handle
        return info


# -- reading -----------------------------------------------------------------------------------------------------------


def _profile_infos(gpu: Handle) -> list[code.ProfileInfo]:
    """Every profile the GPU has now. Which constants exist is asked, not assumed: newer drivers know more."""
    ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo
    return [code.profile_info(constant, raw) for constant, raw in _enumerated(lambda c, v: ask(gpu, c, version=v))]


def _enumerated(ask: Callable[[int, int], Any]) -> Iterator[tuple[int, Any]]:
    """(constant, answer) until the library says that there are no more. Drivers that do not know version 2 get version 1; those
    that know neither have no MIG."""
    version, seen = 2, set()
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
            if error.value in (code.INVALID_ARGUMENT, code.FUNCTION_NOT_FOUND):
                return
            if error.value in (code.NOT_SUPPORTED, code.NOT_FOUND):
                continue
            raise _error(error.value, "listing the profiles") from error
        if int(answer.id) not in seen:
            seen.add(int(answer.id))
            yield constant, answer


def _placements(gpu: Handle, profile_id: int) -> list[tuple[int, int]]:
    """(start, size) of each, none for a profile that the GPU does not have now."""
    ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    count = c_uint(0)
    try:
        with _translated(f"reading the placements of profile {profile_id}"):
            ask(gpu, profile_id, None, byref(count))
            array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
            if count.value:
                ask(gpu, profile_id, array, byref(count))
    except NotSupported:
        return []
    return [(int(p.start), int(p.size)) for p in array[: count.value]]


def _listed(call: Callable[..., Any], kind: Any, parent: Handle, profile_id: int) -> list[Handle]:
    # The profile's instanceCount would be the documented size of the array, but an A30 reports it wrongly.
    array = (kind * _MAX_INSTANCES)()
    count = c_uint(_MAX_INSTANCES)
    with suppress(NotSupported), _translated(f"listing the instances of profile {profile_id}"):
        call(parent, profile_id, array, byref(count))
        return list(array[: count.value])
    return []


def _compute_profiles(handle: Handle) -> Iterator[Any]:
    engine = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    return (profile for _, profile in _enumerated(lambda c, v: ask(handle, c, engine, version=v)))


def _compute_instances(handle: Handle) -> list[tuple[Handle, int]]:
    """Compute instances of a GPU instance, each with its compute slices."""
    call, kind = pynvml.nvmlGpuInstanceGetComputeInstances, pynvml.c_nvmlComputeInstance_t
    profiles = [(int(p.id), int(p.sliceCount)) for p in _compute_profiles(handle)]
    return [(compute, slices) for number, slices in profiles for compute in _listed(call, kind, handle, number)]


def _filling_profile(handle: Handle, slice_count: int) -> int:
    """The id of the compute instance profile that takes all of a GPU instance. It need not have the number one expects: on the
    1g with double memory it is 7, not 0."""
    for profile in _compute_profiles(handle):
        if int(profile.sliceCount) == slice_count and int(profile.instanceCount) == 1:
            return int(profile.id)
    raise NotSupported(f"No compute instance fills a GPU instance of {slice_count} compute slices.")


def _instance(gpu_uuid: str, handle: Handle, slice_count: int) -> Instance:
    with _translated(f"reading a GPU instance of {gpu_uuid}"):
        info = pynvml.nvmlGpuInstanceGetInfo(handle)
        compute = _compute_instances(handle)
        filling = [c for c, slices in compute if slices == slice_count]
        mig_uuid = _mig_uuid(filling[0]) if filling else None
    return Instance(
        gpu_uuid=gpu_uuid,
        gpu_instance_id=int(info.id),
        profile_id=int(info.profileId),
        start=int(info.placement.start),
        size=int(info.placement.size),
        mig_uuid=mig_uuid,
        compute_instances=len(compute),
    )


def _mig_uuid(compute: Handle) -> str:
    return code.text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(compute).device))


def _find(gpu: Handle, wanted: Instance) -> Handle | None:
    """The handle of a GPU instance, if what has its id now sits in its place."""
    try:
        with _translated(f"finding GPU instance {wanted.gpu_instance_id} on {wanted.gpu_uuid}"):
            handle = pynvml.nvmlDeviceGetGpuInstanceById(gpu, wanted.gpu_instance_id)
            info = pynvml.nvmlGpuInstanceGetInfo(handle)
    except DeviceNotFound:
        return None
    found = (info.profileId, info.placement.start, info.placement.size)
    return handle if found == (wanted.profile_id, wanted.start, wanted.size) else None


def _tear_down(handle: Handle) -> None:
    with _translated("destroying a GPU instance"):
        for compute, _ in _compute_instances(handle):
            pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(handle)


def _pids(device: Handle, call: str, doing: str) -> set[int]:
    with _translated(doing):
        try:
            return {int(process.pid) for process in getattr(pynvml, f"{call}RunningProcesses_v3")(device)}
        except pynvml.NVMLError as error:
            if error.value != code.FUNCTION_NOT_FOUND:
                raise
        return {int(process.pid) for process in getattr(pynvml, f"{call}RunningProcesses_v2")(device)}


def _mig_device(gpu: Handle, mig_uuid: str) -> Handle:
    with _translated(f"finding {mig_uuid}"):
        for index in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))):
            try:
                device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            except pynvml.NVMLError as error:
                if error.value == code.NOT_FOUND:
                    continue
                raise
            if code.text(pynvml.nvmlDeviceGetUUID(device)) == mig_uuid:
                return device
    raise DeviceNotFound(f"There is no MIG device {mig_uuid}.")


def _mig_enabled(gpu: Handle) -> bool | None:
    """None for a GPU, or a driver, without MIG."""
    with suppress(NotSupported), _translated("reading the MIG mode"):
        current, _pending = pynvml.nvmlDeviceGetMigMode(gpu)
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)
    return None


def _multiprocessors(gpu: Handle) -> int:
    """SMs of a whole GPU, which NVML gives only as CUDA cores; 0 if it does not."""
    with suppress(NotSupported), _translated("reading the number of cores"):
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
        return code.multiprocessors(int(pynvml.nvmlDeviceGetNumGpuCores(gpu)), (int(major), int(minor)))
    return 0


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Errors of NVML become ours."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise _error(error.value, doing) from error


def _error(value: int, doing: str) -> DriverError:
    return code.error_of(value, str(pynvml.NVMLError(value)), doing)
