"""What a holder asks for: one MIG profile, any slice with enough memory, a whole GPU, or one MIG device by name.

"None" is no request at all: a server without a GPU has no lease.
"""

from __future__ import annotations

from dataclasses import dataclass

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest

MIB_PER_GIB = 1024
MAX_ALTERNATIVES = 8
MIN_PRIORITY, MAX_PRIORITY = -100, 100
"""Greater goes first; 0 is what everybody has who says nothing."""


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """One GPU instance of exactly this profile."""

    profile: ProfileName

    def __str__(self) -> str:
        return str(self.profile)


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """One GPU instance with at least this much memory, the smallest that is to be had.

    Attributes:
        min_memory_gb: what the person thinks of as GB. A profile called `1g.10gb` satisfies 10 although it has 9.5 GiB: people count in
            the numbers of the names.
    """

    min_memory_gb: float

    def __post_init__(self) -> None:
        if not 0 < self.min_memory_gb <= 10_000:
            raise InvalidRequest(f"Ask for more than 0 and at most 10000 GB of GPU memory, not {self.min_memory_gb:g}.")

    def __str__(self) -> str:
        return f"at least {self.min_memory_gb:g} GB"


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """One whole GPU, not cut."""

    def __str__(self) -> str:
        return "a whole GPU"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One MIG device that an admin has made, by name.

    Devices that are made for a lease and destroyed after it have no name that could be asked for.
    """

    mig_uuid: str

    def __str__(self) -> str:
        return f"the device {self.mig_uuid}"


Request = SliceRequest | MemoryRequest | WholeRequest | DeviceRequest
