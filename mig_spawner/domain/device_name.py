"""Names of MIG devices, in the two forms that NVIDIA has used.

| form | says |
|---|---|
| `MIG-<uuid>` | nothing that could be read from it. Drivers print it since 470 |
| `MIG-GPU-<uuid>/<GPU instance>/<compute instance>` | where the device sits. Older drivers print it; newer ones, and CUDA, still take it |

No name is ever put together here: a device is called what its driver calls it. Letters of a UUID are compared in lower case, as drivers
print them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mig_spawner.errors import InvalidRequest

PATTERN: Final = r"MIG-([A-Za-z0-9-]+|GPU-[A-Za-z0-9-]+/[0-9]{1,9}/[0-9]{1,9})"
_OLDER: Final = re.compile(r"MIG-(GPU-[a-z0-9-]+)/([0-9]{1,9})/([0-9]{1,9})")
_TWICE: Final = "MIG-GPU-gpu-"
_PLUGIN: Final = re.compile(r"((?:MIG|GPU)-[A-Za-z0-9/-]{1,120})(?:::\d+)?")


@dataclass(frozen=True, slots=True)
class OlderName:
    """Where a device sits, as the older form of its name says: the GPU instance first, then the compute instance."""

    gpu_uuid: str
    gpu_instance_id: int
    compute_instance_id: int


def spelled(name: str) -> str:
    """A name as drivers spell it.

    Raises:
        InvalidRequest: it is of neither form.
    """
    if not re.fullmatch(PATTERN, name):
        raise _none(name)
    prefix = "MIG-GPU-" if name.startswith("MIG-GPU-") else "MIG-"
    spelling = prefix + name.removeprefix(prefix).lower()
    if spelling.startswith(_TWICE):
        raise _none(name)
    return spelling


def older_name(name: str) -> OlderName | None:
    """What a name of the older form says; None for another one."""
    match = _OLDER.fullmatch(name)
    return None if match is None else OlderName(match[1], int(match[2]), int(match[3]))


def of_plugin(resource_id: str) -> str | None:
    """The device, or the GPU, that a device plugin calls so; a number follows where it shares one. None if it is no name of NVIDIA's."""
    match = _PLUGIN.fullmatch(resource_id)
    return None if match is None else match[1]


def _none(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name[:80]!r} names no MIG device. Write it as nvidia-smi -L does, MIG-<uuid>, or in the older form "
        "MIG-GPU-<uuid>/<GPU instance>/<compute instance>."
    )
