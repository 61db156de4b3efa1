"""Runs inside the container, before the server: compare what NVML shows there with what was leased, then become the server.

It is handed over as text (`python -c`), so it imports nothing of ours, needs no nvidia-smi, and runs on any Python 3 that an image has.
What cannot be checked is said and starts all the same.
"""

import ctypes
import os
import sys
from typing import Any, Iterator, List, Mapping, Optional, Tuple  # noqa: UP035  Python 3.6

Device = Tuple[str, str, int]  # noqa: UP006  likewise

NONE, OTHER, SEVERAL, SIZE, SHAPE, UNLEASED = 71, 72, 73, 74, 75, 76
NOT_FOUND = 6
BYTES = 96


class CannotCheck(Exception):
    """What cannot be known in here."""


class Memory(ctypes.Structure):
    """As NVML's version 1 of it, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def load() -> Any:
    """NVML in a session; None where the container has none of it."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return nvml if nvml.nvmlInit_v2() == 0 else None


def call(nvml: Any, name: str, *arguments: Any) -> None:
    code = getattr(nvml, name)(*arguments)
    if code != 0:
        raise CannotCheck(f"NVML answers {code} to {name}")


def text_of(nvml: Any, name: str, handle: Any) -> str:
    buffer = ctypes.create_string_buffer(BYTES)
    call(nvml, name, handle, buffer, ctypes.c_uint(BYTES))
    return buffer.value.decode("utf-8", "replace")


def devices(nvml: Any) -> List[Device]:  # noqa: UP006  likewise
    """What can be used in here, as (UUID, name, bytes): the MIG devices of a GPU that has some, else the GPU."""
    found: List[Device] = []  # noqa: UP006  likewise
    count = ctypes.c_uint()
    call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    for index in range(count.value):
        gpu = ctypes.c_void_p()
        call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(gpu))
        handles = list(mig_devices(nvml, gpu)) or [gpu]
        for handle in handles:
            memory = Memory()
            call(nvml, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            uuid, name = (text_of(nvml, get, handle) for get in ("nvmlDeviceGetUUID", "nvmlDeviceGetName"))
            found.append((uuid, name, memory.total))
    return found


def mig_devices(nvml: Any, gpu: Any) -> Iterator[Any]:
    most = ctypes.c_uint()
    if nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most)) != 0:
        return
    for index in range(most.value):
        handle = ctypes.c_void_p()
        code = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, ctypes.c_uint(index), ctypes.byref(handle))
        if code == 0:
            yield handle
        elif code != NOT_FOUND:
            raise CannotCheck(f"NVML answers {code} to nvmlDeviceGetMigDeviceHandleByIndex")


def compare(seen: List[Device], env: Mapping[str, str]) -> Optional[Tuple[int, str]]:  # noqa: UP006, UP045  likewise
    """The fault, as (exit code, sentence); None where all is as leased."""
    if not env.get("MIG_LEASE_ID"):
        if seen:
            return UNLEASED, f"The server has no lease, and sees {len(seen)} GPU devices."
        return None
    if not seen:
        return NONE, "The server has a lease, and sees no GPU device."
    if len(seen) > 1:
        return SEVERAL, "The server has one lease, and sees {} GPU devices: {}.".format(
            len(seen), ", ".join(d[0] for d in seen)
        )
    uuid, name, size = seen[0]
    visible = env.get("NVIDIA_VISIBLE_DEVICES", "")
    leased = env.get("MIG_DEVICE_UUID") or (visible if visible.startswith("GPU-") else "")
    if leased and uuid != leased:
        return OTHER, f"The server sees the device {uuid}, and leased is {leased}."
    limit = int(env.get("GPU_MEM_LIMIT") or 0)
    if limit and abs(size - limit) > max(limit // 20, 512 << 20):
        return SIZE, f"The device has {size >> 20} MiB, and leased are {limit >> 20} MiB."
    profile, shape = env.get("MIG_PROFILE"), name.partition(" MIG ")[2].strip()
    if profile and shape and shape != profile:
        return SHAPE, f"The device is a {shape}, and leased is a {profile}."
    return None


def main() -> None:
    fault = None
    try:
        nvml = load()
        if nvml is None and os.environ.get("MIG_LEASE_ID"):
            raise CannotCheck("NVML is not in this container")
        fault = compare([] if nvml is None else devices(nvml), os.environ)
    except Exception as error:
        sys.stderr.write(f"mig-spawner cannot check the GPU of this server: {error}\n")
    if fault is not None:
        sys.stderr.write(fault[1] + "\n")
        sys.exit(fault[0])
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  this is the server, as it would have been started


if __name__ == "__main__":
    main()
