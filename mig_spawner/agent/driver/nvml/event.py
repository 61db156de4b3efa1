"""What NVML announces: critical errors (XID), for whole GPUs and, to root, for instances."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from ctypes import c_void_p, cast
from typing import Any, Final

import pynvml

from mig_spawner.agent.driver import code
from mig_spawner.agent.driver.base import Event
from mig_spawner.agent.driver.nvml.reading import Handle

_MAX_AT_ONCE: Final = 256
"""A GPU that announces without end must not keep the agent from its work."""
_WHOLE_GPU: Final = 0xFFFFFFFF


class EventSet:
    """The events of one session. NVML keeps what comes until it is asked for."""

    def __init__(self) -> None:
        self._set: Any = None
        self._gpus: dict[int | None, str] = {}

    def take(self, handles: Mapping[str, Handle]) -> tuple[Event, ...]:
        """What was announced since the last call, oldest first. A GPU that cannot announce has none.

        Args:
            handles: of the GPUs, by `gpu_uuid`. A lost GPU cannot be asked who it is, so each is remembered by its handle.
        """
        events = self._drain()
        gpus = {_address(handle): gpu_uuid for gpu_uuid, handle in handles.items()}
        if self._set is None or not gpus.items() <= self._gpus.items():
            self._register(handles)
            self._gpus = gpus
            events += self._drain()
        return tuple(events)

    def forget(self) -> None:
        """The session ends."""
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
        self._set = None
        self._gpus = {}

    def _register(self, handles: Mapping[str, Handle]) -> None:
        self.forget()
        with suppress(pynvml.NVMLError):
            self._set = pynvml.nvmlEventSetCreate()
            for handle in handles.values():
                with suppress(pynvml.NVMLError):
                    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)

    def _drain(self) -> list[Event]:
        events: list[Event] = []
        while self._set is not None and len(events) < _MAX_AT_ONCE:
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, 0)
            except pynvml.NVMLError as error:
                if error.value != code.TIMEOUT:
                    self.forget()
                break
            gpu_uuid = self._gpus.get(_address(data.device))
            if gpu_uuid is not None:
                instance = None if data.gpuInstanceId == _WHOLE_GPU else int(data.gpuInstanceId)
                events.append(Event(gpu_uuid, int(data.eventData), instance))
        return events


def _address(handle: Handle) -> int | None:
    return cast(handle, c_void_p).value
