"""Every error of mig-spawner, as one tree.

    MigSpawnerError
    ├── InvalidRequest              what was asked cannot be understood; say what to write instead
    │   └── InvalidProfile          a profile name that is none
    ├── AllocatorError              the allocator's answer, as a client sees it
    │   ├── AllocatorUnavailable    no answer: nothing is known, nothing may be assumed
    │   └── AllocatorRefused        it answered no, with a code and a sentence
    ├── DriverError                 what the driver of a GPU answers
    │   ├── DeviceInUse             something still runs on it; try again later
    │   ├── InsufficientResources   the placement is taken, or there is no room
    │   ├── DeviceNotFound          no such GPU, instance or MIG device (or no longer)
    │   ├── NotSupported            this GPU or driver cannot do that
    │   ├── NoPermission            the agent lacks the right
    │   └── DeviceLost              the GPU fell off the bus; nothing more may be granted there
    ├── DemoFailed                  a part of the demo did not come up, or its tour saw something wrong
    ├── StoreError                  the ledger says no, or nothing
    │   ├── SliceTaken              another lease, or what is left of one, has that memory slice
    │   ├── HolderHasLease          the holder has an open lease already
    │   └── StoreUnavailable        the database does not answer; nothing was written
    └── InvalidTransition           a lease cannot go from here to there

Messages are sentences for the person who can do something about it. A class exists where somebody catches it.
"""

from __future__ import annotations


class MigSpawnerError(Exception):
    """The root. The message says what happened and what to do next."""


class InvalidRequest(MigSpawnerError, ValueError):
    """Input that cannot be understood or served by any means. Never retried.

    A `ValueError` too, so that a document (pydantic) that meets one while it is parsed reports it with the field's name.
    """


class InvalidProfile(InvalidRequest):
    """A string that names no MIG profile."""


class StoreError(MigSpawnerError):
    """The ledger did not take a step. Nothing of it was written."""


class SliceTaken(StoreError):
    """A memory slice of the placement is held already."""


class HolderHasLease(StoreError):
    """The holder has an open lease already."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, is locked for too long, or is full."""


class InvalidTransition(MigSpawnerError):
    """A lease was asked to make a move that its state does not allow."""


class DemoFailed(MigSpawnerError):
    """A part of the demo did not come up or ended, or a step of its tour saw something else than it should."""


class AllocatorError(MigSpawnerError):
    """The allocator could not, or would not, do what was asked."""


class AllocatorUnavailable(AllocatorError):
    """No usable answer from the allocator (refused, timed out, 5xx). The request may or may not have been done."""


class AllocatorRefused(AllocatorError):
    """The allocator answered no.

    Attributes:
        status: the HTTP status, 4xx.
        code: the machine-readable reason, one of `mig_spawner.wire.problem.ProblemCode`.
        retry_after_s: how long to wait before asking again may help, seconds; None where that is not known.
    """

    def __init__(self, message: str, *, status: int, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class DriverError(MigSpawnerError):
    """A call to the driver failed for a reason that is none of the kinds below."""


class DeviceInUse(DriverError):
    """A compute instance still lives in the GPU instance, or a process on the device (NVML code 19)."""


class InsufficientResources(DriverError):
    """The placement overlaps another instance or the engines are used up (NVML code 23)."""


class DeviceNotFound(DriverError):
    """The GPU, instance or MIG device is not there, or no longer (NVML code 6)."""


class NotSupported(DriverError):
    """MIG is off, the profile does not exist on this GPU, or the driver is too old (NVML codes 3 and 13)."""


class NoPermission(DriverError):
    """The agent may not do this: it is neither root nor has it the capability node (NVML code 4)."""


class DeviceLost(DriverError):
    """The GPU does not answer any more (NVML code 15)."""
