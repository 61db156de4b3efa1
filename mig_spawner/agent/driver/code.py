"""The numbers NVML answers with, and what they mean to us. Pure: it needs neither a library nor a GPU."""

from __future__ import annotations

from math import ceil
from typing import Final

from mig_spawner.errors import (
    DeviceInUse,
    DeviceLost,
    DeviceNotFound,
    DriverError,
    InsufficientResources,
    NoPermission,
    NotSupported,
)

INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
IN_USE: Final = 19
INSUFFICIENT_RESOURCES: Final = 23
VERSION_MISMATCH: Final = 25

_KINDS: Final[dict[int, type[DriverError]]] = {
    NOT_SUPPORTED: NotSupported,
    NO_PERMISSION: NoPermission,
    NOT_FOUND: DeviceNotFound,
    FUNCTION_NOT_FOUND: NotSupported,
    GPU_IS_LOST: DeviceLost,
    RESET_REQUIRED: DeviceInUse,
    IN_USE: DeviceInUse,
    INSUFFICIENT_RESOURCES: InsufficientResources,
    VERSION_MISMATCH: NotSupported,
}

_NO_DRIVER: Final = {
    LIBRARY_NOT_FOUND: "There is no NVIDIA driver here: libnvidia-ml.so.1 was not found. "
    "Run the agent on a GPU node with the driver mounted, or use --driver fake.",
    DRIVER_NOT_LOADED: "The NVIDIA driver is not loaded. Load it (nvidia-smi must work), then start the agent again.",
}

_SUFFIXES: Final = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
"""By the constant that asks about a profile."""

_CORES_PER_SM: Final = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}


def error_of(value: int, reason: str, doing: str) -> DriverError:
    """Our error for a code of NVML.

    Args:
        reason: NVML's text for it.
        doing: what was tried, "creating …".
    """
    return _KINDS.get(value, DriverError)(f"NVML answered {value} ({reason}) when {doing}.")


def why_no_driver(value: int, reason: str) -> str:
    """A sentence for the admin when the session cannot begin."""
    return _NO_DRIVER.get(value, f"The NVIDIA driver cannot be used: NVML answered {value} ({reason}).")


def computed_name(constant: int, slice_count: int, profile_mib: int, gpu_mib: int) -> str:
    """The name of a profile for drivers that do not give it (before 530), as NVIDIA's own tools compute it: memory as eighths of the
    total, rounded up, times the total in GiB, rounded up.

    Args:
        constant: the number that asks about the profile.
    """
    eighths = ceil(profile_mib * 8 / gpu_mib)
    gigabytes = round(ceil(gpu_mib / 1024) * eighths / 8)
    return f"{slice_count}g.{gigabytes}gb{_SUFFIXES.get(constant, '')}"


def multiprocessors(cores: int, capability: tuple[int, int]) -> int:
    """SMs of a GPU with so many CUDA cores; NVML gives only those for a whole GPU."""
    return cores // _CORES_PER_SM.get(capability, 128)
