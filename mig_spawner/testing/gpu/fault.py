"""Knobs: what a simulated node can be told to do wrong, one call at a time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, Field

from mig_spawner import errors


class Verb(StrEnum):
    """The calls that can be slow or fail, named after what NVML is asked."""

    READ_GPU = "read-gpu"
    LIST_PROFILES = "list-profiles"
    LIST_INSTANCES = "list-instances"
    COUNT_PROCESSES = "count-processes"
    CREATE_GPU_INSTANCE = "create-gpu-instance"
    CREATE_COMPUTE_INSTANCE = "create-compute-instance"
    DESTROY_GPU_INSTANCE = "destroy-gpu-instance"
    DESTROY_COMPUTE_INSTANCE = "destroy-compute-instance"
    SET_MIG_MODE = "set-mig-mode"


class ErrorKind(StrEnum):
    """Which error a failing call raises; each is the class of that name in `mig_spawner.errors`."""

    DRIVER_ERROR = "DriverError"
    DEVICE_IN_USE = "DeviceInUse"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    DEVICE_NOT_FOUND = "DeviceNotFound"
    NOT_SUPPORTED = "NotSupported"
    NO_PERMISSION = "NoPermission"
    DEVICE_LOST = "DeviceLost"


_CLASSES: Final[dict[ErrorKind, type[errors.DriverError]]] = {
    ErrorKind.DRIVER_ERROR: errors.DriverError,
    ErrorKind.DEVICE_IN_USE: errors.DeviceInUse,
    ErrorKind.INSUFFICIENT_RESOURCES: errors.InsufficientResources,
    ErrorKind.DEVICE_NOT_FOUND: errors.DeviceNotFound,
    ErrorKind.NOT_SUPPORTED: errors.NotSupported,
    ErrorKind.NO_PERMISSION: errors.NoPermission,
    ErrorKind.DEVICE_LOST: errors.DeviceLost,
}


class Fault(BaseModel):
    """The next calls of one verb fail.

    Attributes:
        times: how many calls still fail.
        gpu_uuid: on this GPU alone; None for any.
    """

    verb: Verb
    error: ErrorKind = ErrorKind.DRIVER_ERROR
    times: Annotated[int, Field(ge=1)] = 1
    gpu_uuid: str | None = None

    def applies_to(self, verb: Verb, gpu_uuid: str) -> bool:
        return self.verb is verb and self.gpu_uuid in (None, gpu_uuid)

    def exception(self) -> errors.DriverError:
        return _CLASSES[self.error](f"The simulated driver was told to fail at {self.verb} with {self.error}.")
