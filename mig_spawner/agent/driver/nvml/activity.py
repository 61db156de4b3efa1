"""GPM: how busy each GPU instance was between two looks. Hopper and newer; others have no figures per slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from mig_spawner.agent.driver.base import Activity
from mig_spawner.agent.driver.nvml.reading import Handle

_SHORTEST_S: Final = 0.1
"""NVIDIA asks for a tenth of a second between two samples."""
_METRICS: Final = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)


@dataclass(slots=True)
class _Window:
    """The sample a window began with, of which device and when; and what the last complete window showed."""

    device_uuid: str
    sample: Any
    begun: float
    last: Activity | None = None


class Windows:
    """A window per GPU instance, from look to look. An id is given again to another instance, so each knows its device."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[tuple[str, int], _Window] = {}

    def read(self, gpu_uuid: str, gpu: Handle, devices: Mapping[int, str]) -> dict[int, Activity]:
        """By GPU instance id; without those that have no figure (yet).

        Args:
            devices: the `mig_uuid` of every GPU instance that has a device.
        """
        found: dict[int, Activity] = {}
        for number, device_uuid in devices.items():
            with suppress(pynvml.NVMLError):
                activity = self._read(gpu_uuid, gpu, number, device_uuid)
                if activity is not None:
                    found[number] = activity
        for key in [k for k in self._windows if k[0] == gpu_uuid and k[1] not in devices]:
            self._free(key)
        return found

    def measures(self, gpu: Handle) -> bool:
        """Whether this GPU has figures at all."""
        with suppress(pynvml.NVMLError):
            return bool(pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)
        return False

    def end(self, gpu_uuid: str, number: int) -> None:
        """This GPU instance goes. The next one with its id, place and even UUID is another one."""
        self._free((gpu_uuid, number))

    def forget(self) -> None:
        """The session ends."""
        for key in list(self._windows):
            self._free(key)

    def _read(self, gpu_uuid: str, gpu: Handle, number: int, device_uuid: str) -> Activity | None:
        key, now = (gpu_uuid, number), self._clock()
        known = self._windows.get(key)
        if known is not None and known.device_uuid != device_uuid:
            self._free(key)
            known = None
        if known is not None and now - known.begun < _SHORTEST_S:
            return known.last
        sample = pynvml.nvmlGpmSampleAlloc()
        try:
            pynvml.nvmlGpmMigSampleGet(gpu, number, sample)
            last = None if known is None else _between(known.sample, sample)
        except pynvml.NVMLError:
            pynvml.nvmlGpmSampleFree(sample)
            self._free(key)
            raise
        self._free(key)
        self._windows[key] = _Window(device_uuid, sample, now, last)
        return last

    def _free(self, key: tuple[str, int]) -> None:
        window = self._windows.pop(key, None)
        if window is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(window.sample)


def _between(first: Any, last: Any) -> Activity:
    get = pynvml.c_nvmlGpmMetricsGet_t()
    get.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    get.numMetrics = len(_METRICS)
    get.sample1, get.sample2 = first, last
    for place, metric in enumerate(_METRICS):
        get.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(get)
    return Activity(*(_part(get.metrics[place]) for place in range(len(_METRICS))))


def _part(metric: Any) -> float | None:
    """0 to 1; None for a figure that was not given or is none. Drivers have shown more than 100 percent."""
    if metric.nvmlReturn != pynvml.NVML_SUCCESS or not 0 <= metric.value <= 1000:
        return None
    return min(float(metric.value) / 100, 1.0)
