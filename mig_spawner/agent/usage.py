"""What the devices of a node use: memory now and at most, and how busy they are. What is not measured is None, never 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mig_spawner.agent.driver.base import Activity, Driver, Memory
from mig_spawner.errors import DriverError
from mig_spawner.wire.node import GPUDocument, Health, UsageDocument

_NOT_MEASURED = Activity()


class Meter:
    """Reads what the devices of a report use. Call it from the driver's thread.

    It remembers the most memory each device was seen to use. A device that goes takes that with it: the next one in its place, under
    the same UUID even, begins anew.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._peaks: dict[tuple[str, str, int | None], int] = {}

    def read(self, gpus: Sequence[GPUDocument]) -> tuple[UsageDocument, ...]:
        """One for each MIG device and each uncut GPU of these. A GPU that does not answer has none."""
        found = tuple(usage for gpu in gpus if gpu.health is not Health.BAD for usage in self._of(gpu))
        seen = {_key(usage) for usage in found}
        self._peaks = {key: peak for key, peak in self._peaks.items() if key in seen}
        return found

    def _of(self, gpu: GPUDocument) -> Iterator[UsageDocument]:
        if gpu.mig_enabled is not True:
            yield self._measured(gpu.gpu_uuid, gpu.gpu_uuid, None, gpu.processes, _NOT_MEASURED)
            return
        try:
            busy = self._driver.activity(gpu.gpu_uuid)
        except DriverError:
            busy = {}
        for i in gpu.instances:
            if i.mig_uuid is not None:
                activity = busy.get(i.gpu_instance_id, _NOT_MEASURED)
                yield self._measured(gpu.gpu_uuid, i.mig_uuid, i.gpu_instance_id, i.processes, activity)

    def _measured(
        self, gpu_uuid: str, device_uuid: str, number: int | None, processes: int | None, activity: Activity
    ) -> UsageDocument:
        memory: Memory | None
        try:
            memory = self._driver.memory(gpu_uuid, device_uuid)
        except DriverError:
            memory = None
        usage = UsageDocument(
            gpu_uuid=gpu_uuid,
            device_uuid=device_uuid,
            gpu_instance_id=number,
            processes=processes,
            memory_used_mib=None if memory is None else memory.used_mib,
            memory_total_mib=None if memory is None else memory.total_mib,
            sm=activity.sm,
            tensor=activity.tensor,
            dram=activity.dram,
        )
        return usage.model_copy(update={"memory_peak_mib": self._peak(usage)})

    def _peak(self, usage: UsageDocument) -> int | None:
        key = _key(usage)
        if usage.memory_used_mib is not None:
            self._peaks[key] = max(usage.memory_used_mib, self._peaks.get(key, 0))
        return self._peaks.get(key)


def _key(usage: UsageDocument) -> tuple[str, str, int | None]:
    return usage.gpu_uuid, usage.device_uuid, usage.gpu_instance_id
