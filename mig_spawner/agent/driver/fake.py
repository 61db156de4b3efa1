"""The driver of simulated GPUs: the port on top of `mig_spawner.testing.gpu.SimulatedNode`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from mig_spawner.agent.driver.base import Activity, Driver, Event, GPUInfo, Instance, Memory, Recovery, Vitals
from mig_spawner.domain.gpu import Profile
from mig_spawner.errors import DeviceInUse, DeviceNotFound, DriverError
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.testing.gpu.board import SimulatedInstance


class FakeDriver(Driver):
    """Drives simulated GPUs as the NVML adapter drives real ones: two creates, two destroys, everything read back."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._known: dict[str, GPUInfo] = {}
        self._before: dict[str, dict[int, str]] = {}
        self._listens = False

    def open(self) -> None:
        pass

    def close(self) -> None:
        self._listens = False
        self._before.clear()

    def boot_id(self) -> str:
        return self._node.boot_id()

    def list_gpus(self) -> tuple[GPUInfo, ...]:
        return tuple(info for uuid in self._node.gpu_uuids() if (info := self._read(uuid)) is not None)

    def list_profiles(self, gpu_uuid: str) -> tuple[Profile, ...]:
        return self._node.profiles(gpu_uuid)

    def list_instances(self, gpu_uuid: str) -> tuple[Instance, ...]:
        _, mig_enabled = self._node.read_gpu(gpu_uuid)
        return tuple(_instance(i) for i in self._node.instances(gpu_uuid)) if mig_enabled else ()

    def processes(self, gpu_uuid: str, device_uuid: str) -> int:
        return self._node.processes(gpu_uuid, device_uuid)

    def memory(self, gpu_uuid: str, device_uuid: str) -> Memory:
        used, total = self._node.memory(gpu_uuid, device_uuid)
        return Memory(used, total)

    def vitals(self, gpu_uuid: str) -> Vitals:
        state = self._node.wear_of(gpu_uuid)
        pending = None if state.mig_pending == state.mig_enabled else state.mig_pending
        needs = None if state.recovery is None else Recovery(state.recovery)
        return Vitals(state.memory_errors, state.remap_pending, state.remap_failed, pending, needs)

    def events(self) -> tuple[Event, ...]:
        # What was announced before anybody listened is heard by nobody.
        announced = self._node.take_announced()
        heard = announced if self._listens else ()
        self._listens = True
        return tuple(Event(*event) for event in heard)

    def activity(self, gpu_uuid: str) -> Mapping[int, Activity]:
        now = {i.gpu_instance_id: i for i in self._node.activity(gpu_uuid)}
        before, devices = self._before.get(gpu_uuid, {}), {n: str(i.mig_uuid) for n, i in now.items()}
        self._before[gpu_uuid] = devices
        return {n: Activity(i.sm, i.tensor, i.dram) for n, i in now.items() if before.get(n) == devices[n]}

    def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
        made = self._node.create_gpu_instance(gpu_uuid, profile_id, start, size)
        try:
            return _instance(self._node.create_compute_instance(gpu_uuid, made.gpu_instance_id))
        except DriverError:
            with suppress(DriverError):  # then it stays half-made, and is found as such
                self._node.destroy_gpu_instance(gpu_uuid, made.gpu_instance_id)
            raise

    def destroy(self, instance: Instance) -> None:
        found = next(
            (i for i in self.list_instances(instance.gpu_uuid) if i.gpu_instance_id == instance.gpu_instance_id), None
        )
        if found is None or (found.profile_id, found.placement) != (instance.profile_id, instance.placement):
            raise DeviceNotFound(f"GPU instance {instance.gpu_instance_id} of {instance.gpu_uuid} is gone.")
        if found.mig_uuid not in (None, instance.mig_uuid):
            raise DeviceNotFound(
                f"GPU instance {instance.gpu_instance_id} of {instance.gpu_uuid} holds another device."
            )
        self._before.get(found.gpu_uuid, {}).pop(found.gpu_instance_id, None)
        if found.mig_uuid is not None:
            self._node.destroy_compute_instance(found.gpu_uuid, found.gpu_instance_id)
        self._node.destroy_gpu_instance(found.gpu_uuid, found.gpu_instance_id)

    def set_mig_mode(self, gpu_uuid: str, enabled: bool) -> None:
        try:
            self._node.set_mig_mode(gpu_uuid, enabled)
        except DeviceInUse:
            with suppress(DriverError):  # Ampere keeps the wish for its next reset, when nobody wants it any more
                self._node.set_mig_mode(gpu_uuid, not enabled)
            raise

    def _read(self, gpu_uuid: str) -> GPUInfo | None:
        try:
            gpu, mig_enabled = self._node.read_gpu(gpu_uuid)
        except DriverError as error:
            known = self._known.get(gpu_uuid)
            return None if known is None else replace(known, mig_enabled=None, problem=str(error))
        info = GPUInfo(
            gpu.gpu_uuid,
            gpu.model,
            gpu.memory_mib,
            gpu.multiprocessors,
            mig_enabled,
            pci_device_id=self._node.pci_device_id(gpu_uuid),
        )
        self._known[gpu_uuid] = info
        return info


def _instance(seen: SimulatedInstance) -> Instance:
    return Instance(
        gpu_uuid=seen.gpu_uuid,
        gpu_instance_id=seen.gpu_instance_id,
        profile_id=seen.profile.profile_id,
        start=seen.placement.start,
        size=seen.placement.size,
        mig_uuid=seen.mig_uuid,
        compute_instances=int(seen.mig_uuid is not None),
    )
