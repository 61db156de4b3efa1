"""What is asked of NVML, as values or handles that live as long as the question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from mig_spawner.agent.driver import code
from mig_spawner.agent.driver.base import Instance, Recovery, Vitals
from mig_spawner.errors import DeviceLost, DeviceNotFound, DriverError, NotSupported

T = TypeVar("T")
Handle = Any
"""An opaque handle of NVML."""

MIB: Final = 1024 * 1024
_MAX_CONSTANT: Final = 64
"""Enumerations end at "invalid argument"; this only guards against a library that never says so."""
_MAX_INSTANCES: Final = 64
_MOST_SHOWN: Final = 5

PROCESSES: Final = ("nvmlDeviceGetCompute", "nvmlDeviceGetGraphics", "nvmlDeviceGetMPSCompute")
"""Calls that list processes, without "RunningProcesses" and their version."""


def profile_infos(gpu: Handle) -> list[code.ProfileInfo]:
    """Every profile the GPU has now. Which constants exist is asked, not assumed: newer drivers know more."""
    ask = pynvml.nvmlDeviceGetGpuInstanceProfileInfo
    return [code.profile_info(constant, raw) for constant, raw in enumerated(lambda c, v: ask(gpu, c, version=v))]


def enumerated(ask: Callable[[int, int], Any]) -> Iterator[tuple[int, Any]]:
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
            raise error_of(error.value, "listing the profiles") from error
        if int(answer.id) not in seen:
            seen.add(int(answer.id))
            yield constant, answer


def placements(gpu: Handle, profile_id: int) -> list[tuple[int, int]]:
    """(start, size) of each, none for a profile that the GPU does not have now."""
    ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    count = c_uint(0)
    try:
        with translated(f"reading the placements of profile {profile_id}"):
            ask(gpu, profile_id, None, byref(count))
            array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
            if count.value:
                ask(gpu, profile_id, array, byref(count))
    except NotSupported:
        return []
    return [(int(p.start), int(p.size)) for p in array[: count.value]]


def listed(call: Callable[..., Any], kind: Any, parent: Handle, profile_id: int) -> list[Handle]:
    # The profile's instanceCount would be the documented size of the array, but an A30 reports it wrongly.
    array = (kind * _MAX_INSTANCES)()
    count = c_uint(_MAX_INSTANCES)
    with suppress(NotSupported), translated(f"listing the instances of profile {profile_id}"):
        call(parent, profile_id, array, byref(count))
        return list(array[: count.value])
    return []


def compute_profiles(handle: Handle) -> Iterator[Any]:
    engine = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    return (profile for _, profile in enumerated(lambda c, v: ask(handle, c, engine, version=v)))


def compute_instances(handle: Handle) -> list[tuple[Handle, int]]:
    """Compute instances of a GPU instance, each with its compute slices."""
    call, kind = pynvml.nvmlGpuInstanceGetComputeInstances, pynvml.c_nvmlComputeInstance_t
    profiles = [(int(p.id), int(p.sliceCount)) for p in compute_profiles(handle)]
    return [(compute, slices) for number, slices in profiles for compute in listed(call, kind, handle, number)]


def filling_profile(handle: Handle, slice_count: int) -> int:
    """The id of the compute instance profile that takes all of a GPU instance. It need not have the number one expects: on the
    1g with double memory it is 7, not 0."""
    for profile in compute_profiles(handle):
        if int(profile.sliceCount) == slice_count and int(profile.instanceCount) == 1:
            return int(profile.id)
    raise NotSupported(f"No compute instance fills a GPU instance of {slice_count} compute slices.")


def read_instance(gpu_uuid: str, handle: Handle, slice_count: int) -> Instance:
    with translated(f"reading a GPU instance of {gpu_uuid}"):
        info = pynvml.nvmlGpuInstanceGetInfo(handle)
        compute = compute_instances(handle)
        filling = [c for c, slices in compute if slices == slice_count]
        mig_uuid = mig_uuid_of(filling[0]) if filling else None
    return Instance(
        gpu_uuid=gpu_uuid,
        gpu_instance_id=int(info.id),
        profile_id=int(info.profileId),
        start=int(info.placement.start),
        size=int(info.placement.size),
        mig_uuid=mig_uuid,
        compute_instances=len(compute),
    )


def mig_uuid_of(compute: Handle) -> str:
    return code.text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(compute).device))


def find_instance(gpu: Handle, wanted: Instance) -> Handle | None:
    """The handle of a GPU instance, if what has its id now sits in its place."""
    try:
        with translated(f"finding GPU instance {wanted.gpu_instance_id} on {wanted.gpu_uuid}"):
            handle = pynvml.nvmlDeviceGetGpuInstanceById(gpu, wanted.gpu_instance_id)
            info = pynvml.nvmlGpuInstanceGetInfo(handle)
    except DeviceNotFound:
        return None
    found = (info.profileId, info.placement.start, info.placement.size)
    return handle if found == (wanted.profile_id, wanted.start, wanted.size) else None


def tear_down(handle: Handle) -> None:
    with translated("destroying a GPU instance"):
        for compute, _ in compute_instances(handle):
            pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(handle)


def pids(device: Handle, call: str, doing: str) -> set[int]:
    with translated(doing):
        try:
            return {int(process.pid) for process in getattr(pynvml, f"{call}RunningProcesses_v3")(device)}
        except pynvml.NVMLError as error:
            if error.value != code.FUNCTION_NOT_FOUND:
                raise
        return {int(process.pid) for process in getattr(pynvml, f"{call}RunningProcesses_v2")(device)}


def holders(gpu: Handle, number: int | None = None) -> str:
    """A sentence about who may keep a GPU, or one GPU instance of it, in use.

    Monitors hold it open without being listed as a process.
    """
    found: set[int] = set()
    for call in PROCESSES:
        with suppress(pynvml.NVMLError):
            listed_now = getattr(pynvml, f"{call}RunningProcesses_v3")(gpu)
            found |= {int(p.pid) for p in listed_now if number is None or int(p.gpuInstanceId) == number}
    if not found:
        return "No process is listed on it: a monitor, such as DCGM or its exporter, may hold it open."
    shown = ", ".join(f"{pid}{_program(pid)}" for pid in sorted(found)[:_MOST_SHOWN])
    return f"In use by process {shown}{' and others' if len(found) > _MOST_SHOWN else ''}."


def _program(pid: int) -> str:
    """The name of a program of this node in parentheses; nothing where it cannot be seen."""
    with suppress(OSError):
        return f" ({Path(f'/proc/{pid}/comm').read_text('utf-8', 'replace').strip()})"
    return ""


def mig_device(gpu: Handle, mig_uuid: str) -> Handle:
    with translated(f"finding {mig_uuid}"):
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


def mig_enabled(gpu: Handle) -> bool | None:
    """None for a GPU, or a driver, without MIG."""
    with suppress(NotSupported), translated("reading the MIG mode"):
        current, _pending = pynvml.nvmlDeviceGetMigMode(gpu)
        return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)
    return None


def multiprocessors(gpu: Handle) -> int:
    """SMs of a whole GPU, which NVML gives only as CUDA cores; 0 if it does not."""
    with suppress(NotSupported), translated("reading the number of cores"):
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
        return code.multiprocessors(int(pynvml.nvmlDeviceGetNumGpuCores(gpu)), (int(major), int(minor)))
    return 0


def pci_device_id(gpu: Handle) -> str:
    """As mig-parted's device filter writes it; empty if it cannot be read."""
    with suppress(pynvml.NVMLError):
        return f"0x{int(pynvml.nvmlDeviceGetPciInfo(gpu).pciDeviceId):08X}"
    return ""


def vitals(gpu: Handle) -> Vitals:
    """What a GPU counts and what waits for its next reset. What it does not count is None, and no reason to call it sick."""
    kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    errors = _counted("counting memory errors", lambda: int(pynvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter)))
    rows = _counted("reading remapped rows", lambda: tuple(map(bool, pynvml.nvmlDeviceGetRemappedRows(gpu))))
    modes = _counted("reading the MIG mode", lambda: tuple(map(bool, pynvml.nvmlDeviceGetMigMode(gpu))))
    return Vitals(
        memory_errors=errors,
        remap_pending=None if rows is None else rows[2],
        remap_failed=None if rows is None else rows[3],
        mode_pending=None if modes is None or modes[0] == modes[1] else modes[1],
        recovery=_counted("asking for what it needs", lambda: _recovery(gpu)),
    )


def _recovery(gpu: Handle) -> Recovery | None:
    """Drivers before 560 or so do not say."""
    (answer,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return code.recovery(int(answer.value.uiVal)) if answer.nvmlReturn == pynvml.NVML_SUCCESS else None


def _counted(doing: str, ask: Callable[[], T]) -> T | None:
    try:
        with translated(doing):
            return ask()
    except DeviceLost:
        raise
    except DriverError:
        return None


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Errors of NVML become ours."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise error_of(error.value, doing) from error


def error_of(value: int, doing: str) -> DriverError:
    return code.error_of(value, str(pynvml.NVMLError(value)), doing)
