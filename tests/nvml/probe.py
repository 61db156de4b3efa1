"""What runs beside the library, in the worker: the driver of the agent, and `pynvml` bare. Everything here is called by name."""

from __future__ import annotations

import ctypes
import os
import traceback
from contextlib import suppress
from ctypes import byref, c_uint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from mig_spawner.agent.driver.base import Driver
from mig_spawner.agent.driver.nvml import NVMLDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.errors import DriverError

Where = tuple[str, int] | tuple[str, int, int] | tuple[str, int, int, int]
"""A handle by name: ("gpu", index), ("mig", gpu, index), ("instance", gpu, id), ("compute", gpu, instance, id), or ("held", n)."""

_drivers: list[Driver] = []
_held: list[Any] = []
_clock = SimpleNamespace(now=0.0)


class Code(Exception):
    """What NVML answered instead."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


# -- the driver --------------------------------------------------------------------------------------------------------


def use(state: str, boot_file: str) -> None:
    """Begin with these GPUs. The library looks for them when a session begins."""
    os.environ["NVML_IMITATION_STATE"] = state
    _drivers[:] = [NVMLDriver(boot_id=Path(boot_file), clock=lambda: float(_clock.now))]
    _held.clear()


def finish() -> None:
    """End every session, also those that a test has left."""
    _drivers[0].close()
    with suppress(pynvml.NVMLError):
        while True:
            pynvml.nvmlShutdown()


def drive(verb: str, *args: object) -> Any:
    """Call the driver."""
    return getattr(_drivers[0], verb)(*args)


def let_pass(seconds: float) -> None:
    """Move the clock of the driver, which stands still otherwise."""
    _clock.now += seconds


def observe() -> Any:
    """All GPUs as the agent reports them."""
    return Observer(_drivers[0], dynamic=True).observe()


def observe_bytes() -> Any:
    """All GPUs through a wheel that answers bytes where newer ones answer text, as wheels up to 11.510 did."""
    now = {name: getattr(pynvml, name) for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID")}
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo

    def old_info(*args: Any, **named: Any) -> SimpleNamespace:
        answer = info(*args, **named)
        fields = {name: getattr(answer, name) for name, *_ in answer._fields_}
        return SimpleNamespace(**{k: v.encode() if isinstance(v, str) else v for k, v in fields.items()})

    try:
        for name, function in now.items():
            setattr(pynvml, name, lambda *args, function=function: function(*args).encode())
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo = old_info
        return observe()
    finally:
        for name, function in now.items():
            setattr(pynvml, name, function)
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo = info


def formatted(verb: str, *args: object) -> str:
    """The whole traceback of what a call of the driver raises, with everything it came from."""
    try:
        drive(verb, *args)
    except DriverError as error:
        return "".join(traceback.format_exception(error))
    return ""


# -- pynvml bare -------------------------------------------------------------------------------------------------------


def wheel() -> str:
    """Where `pynvml` was taken from."""
    return str(pynvml.__file__)


def plain(function: str, *args: object) -> Any:
    """Call a function that takes no handle."""
    return _readable(_called(function, *args))


def ask(function: str, path: Where, *args: Any, **named: Any) -> Any:
    """Call a function with the handle at this path. Structs come back as dicts, errors of NVML as `Code`."""
    return _readable(_called(function, _handle(path), *args, **named))


def hold(path: Where) -> Where:
    """Keep a handle as it is now; the path to it."""
    _held.append(_handle(path))
    return ("held", len(_held) - 1)


def identify(path: Where, field: str) -> Where:
    """Keep a handle that is in the answer about another; the path to it."""
    _held.append(getattr(_called("nvmlComputeInstanceGetInfo", _handle(path)), field))
    return ("held", len(_held) - 1)


def create(gpu: int, profile_id: int, start: int, size: int) -> int:
    """Make a GPU instance without compute instance; its id."""
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    made = _called("nvmlDeviceCreateGpuInstanceWithPlacement", _handle(("gpu", gpu)), profile_id, byref(placement))
    return int(pynvml.nvmlGpuInstanceGetInfo(made).id)


def placements(gpu: int, profile_id: int, *, room: int | None = None) -> list[tuple[int, int]]:
    """The possible placements: counted first, then listed. `room`: offer an array of this length instead."""
    count = c_uint(0)
    function, device = "nvmlDeviceGetGpuInstancePossiblePlacements", _handle(("gpu", gpu))
    if room is None:
        _called(function, device, profile_id, None, byref(count))
    else:
        count.value = room
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    _called(function, device, profile_id, array, byref(count))
    return [(p.start, p.size) for p in array]


def instance_ids(gpu: int, profile_id: int) -> list[int]:
    """Ids of the GPU instances of a profile, in the order of the library."""
    array, count = (pynvml.c_nvmlGpuInstance_t * 16)(), c_uint(16)
    _called("nvmlDeviceGetGpuInstances", _handle(("gpu", gpu)), profile_id, array, byref(count))
    return [int(pynvml.nvmlGpuInstanceGetInfo(handle).id) for handle in array[: count.value]]


class ProfileInfoV3(ctypes.Structure):
    """Version 3 of the profile info. It is in NVML's header, not in the wheel."""

    _fields_ = [  # as ctypes wants it
        *((name, c_uint) for name in ("version", "id", "slice_count", "instance_count", "multiprocessor_count")),
        *((name, c_uint) for name in ("copy", "decoder", "encoder", "jpeg", "ofa")),
        ("memory_mib", ctypes.c_ulonglong),
        ("name", ctypes.c_char * 96),
        ("capabilities", c_uint),
    ]


def profile_info(gpu: int, constant: int, version: int) -> tuple[int, int, str]:
    """Ask for a profile info of this version (3, or one that does not exist): code, id, name."""
    info = ProfileInfoV3(version=ctypes.sizeof(ProfileInfoV3) | version << 24)
    function = ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetGpuInstanceProfileInfoV
    code = function(_handle(("gpu", gpu)), constant, byref(info))
    return int(code), int(info.id), info.name.decode()


def _called(function: str, *args: Any, **named: Any) -> Any:
    try:
        return getattr(pynvml, function)(*args, **named)
    except pynvml.NVMLError as error:
        raise Code(error.value) from None


def _handle(path: Where) -> Any:
    kind, first, *rest = path
    if kind == "held":
        return _held[first]
    gpu = _called("nvmlDeviceGetHandleByIndex", first)
    if kind == "gpu":
        return gpu
    if kind == "mig":
        return _called("nvmlDeviceGetMigDeviceHandleByIndex", gpu, rest[0])
    instance = _called("nvmlDeviceGetGpuInstanceById", gpu, rest[0])
    if kind == "instance":
        return instance
    return _called("nvmlGpuInstanceGetComputeInstanceById", instance, rest[1])


def _readable(answer: Any) -> Any:
    if isinstance(answer, ctypes.Structure):
        return {name: _readable(getattr(answer, name)) for name, *_ in answer._fields_}
    if isinstance(answer, ctypes._SimpleCData):
        return answer.value
    if isinstance(answer, ctypes._Pointer):
        return "handle"
    if isinstance(answer, list):
        return [_readable(a) for a in answer]
    return dict(vars(answer)) if type(answer).__module__ == "pynvml" else answer
