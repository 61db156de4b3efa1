"""What the agent sees on its node, read from the driver into the documents of the wire.

A GPU is read whole, or reported with health `bad` and nothing on it: half a picture would show taken slices as free.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from mig_spawner.agent.driver.base import Driver, GPUInfo, Instance
from mig_spawner.agent.health import Record
from mig_spawner.domain.gpu import Profile
from mig_spawner.errors import DriverError
from mig_spawner.wire.node import EnginesDocument, GPUDocument, Health, InstanceDocument, ProfileDocument

log = logging.getLogger(__name__)


class Observer:
    """Reads the GPUs of a node. Call it from the driver's thread.

    Args:
        dynamic: whether this agent may cut; it is said of every GPU that has a MIG mode.
        clock: seconds that never go back.

    It remembers what was announced of each GPU, and its profiles: old drivers do not list them while MIG mode is off, and without
    them nobody could ask for a slice of that GPU again.
    """

    def __init__(self, driver: Driver, *, dynamic: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._clock = clock
        self._record = Record()
        self._dynamic = dynamic
        self._profiles: dict[str, tuple[Profile, ...]] = {}

    def observe(self) -> tuple[GPUDocument, ...]:
        """Every GPU of the node. Raises `DriverError` only if the driver as a whole does not answer."""
        infos = self._driver.list_gpus()
        self._record.note(self._driver.events(), self._clock())
        return tuple(self._read(info) for info in infos)

    def _read(self, info: GPUInfo) -> GPUDocument:
        if info.problem:
            return self._bad(info, info.problem)
        try:
            profiles = self._driver.list_profiles(info.gpu_uuid) if info.mig_enabled is not None else ()
            instances = self._driver.list_instances(info.gpu_uuid)
            processes = 0 if info.mig_enabled else self._processes(info.gpu_uuid, info.gpu_uuid)
            seen = tuple(self._instance(i, profiles) for i in instances)
            verdict = self._record.judge(info.gpu_uuid, self._driver.vitals(info.gpu_uuid), self._clock())
        except DriverError as error:
            log.warning("GPU %s cannot be read: %s", info.gpu_uuid, error)
            return self._bad(info, str(error))
        if profiles:
            self._profiles[info.gpu_uuid] = profiles
        known = profiles or self._profiles.get(info.gpu_uuid, ())
        try:
            return GPUDocument(
                gpu_uuid=info.gpu_uuid,
                model=info.model,
                memory_mib=info.memory_mib,
                multiprocessors=info.multiprocessors,
                pci_device_id=info.pci_device_id,
                mig_enabled=info.mig_enabled,
                dynamic=self._dynamic and info.mig_enabled is not None,
                health=verdict.health,
                health_reason=verdict.reason,
                processes=processes,
                profiles=tuple(map(_profile, known)),
                instances=seen,
            )
        except ValueError as error:  # what the driver says of it contradicts itself
            log.warning("GPU %s makes no sense: %s", info.gpu_uuid, error)
            return self._bad(info, "What its driver reports contradicts itself; see the log of the agent.")

    def _instance(self, instance: Instance, profiles: Sequence[Profile]) -> InstanceDocument:
        name = next((str(p.name) for p in profiles if p.profile_id == instance.profile_id), None)
        if instance.mig_uuid is not None:
            processes = self._processes(instance.gpu_uuid, instance.mig_uuid)
        else:
            # Without a compute instance nothing can run. Cut further by an admin: it cannot be known as a whole.
            processes = 0 if instance.half_made else None
        return InstanceDocument(
            gpu_instance_id=instance.gpu_instance_id,
            profile_id=instance.profile_id,
            profile=name,
            start=instance.start,
            size=instance.size,
            mig_uuid=instance.mig_uuid,
            processes=processes,
        )

    def _processes(self, gpu_uuid: str, device_uuid: str) -> int | None:
        try:
            return self._driver.processes(gpu_uuid, device_uuid)
        except DriverError as error:
            log.warning("The processes on %s are not known: %s", device_uuid, error)
            return None

    def _bad(self, info: GPUInfo, reason: str) -> GPUDocument:
        return GPUDocument(
            gpu_uuid=info.gpu_uuid,
            model=info.model,
            memory_mib=info.memory_mib,
            multiprocessors=info.multiprocessors,
            pci_device_id=info.pci_device_id,
            mig_enabled=info.mig_enabled,
            dynamic=self._dynamic and info.mig_enabled is not None,
            health=Health.BAD,
            health_reason=reason[:2000],
            processes=None,
            profiles=tuple(map(_profile, self._profiles.get(info.gpu_uuid, ()))),
        )


def _profile(profile: Profile) -> ProfileDocument:
    e = profile.engines
    return ProfileDocument(
        name=str(profile.name),
        profile_id=profile.profile_id,
        size=profile.size,
        starts=profile.starts,
        compute_slices=profile.compute_slices,
        memory_mib=profile.memory_mib,
        multiprocessors=profile.multiprocessors,
        engines=EnginesDocument(copy_engines=e.copy, decoders=e.decoder, encoders=e.encoder, jpeg=e.jpeg, ofa=e.ofa),
    )
