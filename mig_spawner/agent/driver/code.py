"""What NVML answers, numbers, texts and structs, and what it means to us. Pure: it needs neither a library nor a GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from mig_spawner.agent.driver.base import Recovery
from mig_spawner.domain.gpu import Engines, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import (
    DeviceInUse,
    DeviceLost,
    DeviceNotFound,
    DriverError,
    InsufficientResources,
    InvalidProfile,
    InvalidRequest,
    NoPermission,
    NotSupported,
)

log = logging.getLogger(__name__)

INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
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
    "Mount the driver of the node into the agent, keep the agent away from nodes without GPU, or use --driver fake.",
    DRIVER_NOT_LOADED: "The NVIDIA driver is not loaded. Load it: nvidia-smi must work.",
}

_ADVICE: Final = {
    NO_PERMISSION: " Run the agent as root, or give its container NVIDIA_MIG_CONFIG_DEVICES=all and "
    "NVIDIA_MIG_MONITOR_DEVICES=all."
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

_RECOVERIES: Final = {
    1: Recovery.RESET,
    2: Recovery.BOOT,
    3: Recovery.RESET,  # traffic between GPUs first
    4: Recovery.RESET,  # when it is empty
    6: Recovery.RESET,  # of its bus
    7: Recovery.BOOT,
}

_CORES_PER_SM: Final = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}


def error_of(value: int, reason: str, doing: str) -> DriverError:
    """Our error for a code of NVML.

    Args:
        reason: NVML's text for it.
        doing: what was tried, "creating …".
    """
    return _KINDS.get(value, DriverError)(f"NVML answered {value} ({reason}) when {doing}.{_ADVICE.get(value, '')}")


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


def recovery(action: int) -> Recovery | None:
    """What a GPU needs, by NVML's number. A number that means one thing to some wheels and another to others is `OTHER`."""
    return None if action == 0 else _RECOVERIES.get(action, Recovery.OTHER)


def text(value: str | bytes) -> str:
    """Old wheels answer bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def decoded(ask: Callable[[], str | bytes]) -> str:
    """A text of NVML; empty if it is none (seen under WSL: names that are not UTF-8, for which new wheels raise)."""
    try:
        return text(ask())
    except UnicodeDecodeError:
        return ""


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """What NVML says of a GPU instance profile.

    Attributes:
        constant: the number that asks; `profile_id` creates.
        name: without "MIG "; empty for drivers before 530.
        raw: NVML's struct.
    """

    constant: int
    profile_id: int
    slice_count: int
    name: str
    raw: Any


def profile_info(constant: int, raw: Any) -> ProfileInfo:
    """NVML's struct, of any version, as we read it."""
    name = decoded(lambda: getattr(raw, "name", "")).removeprefix("MIG ").strip()
    return ProfileInfo(constant, int(raw.id), int(raw.sliceCount), name, raw)


def profile(info: ProfileInfo, placements: Sequence[tuple[int, int]], gpu_mib: int) -> Profile | None:
    """A profile as the rest of us knows it; None, and a line in the log, for one that makes no sense.

    Args:
        placements: (start, size) of each; a profile without any cannot be had now and is None.
        gpu_mib: memory of the whole GPU.
    """
    if not placements:
        return None
    raw = info.raw
    memory_mib = int(raw.memorySizeMB)
    try:
        return Profile(
            name=ProfileName.parse(info.name or computed_name(info.constant, info.slice_count, memory_mib, gpu_mib)),
            profile_id=info.profile_id,
            size=placements[0][1],
            starts=tuple(sorted(start for start, _ in placements)),
            compute_slices=info.slice_count,
            memory_mib=memory_mib,
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
