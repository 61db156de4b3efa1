"""Making a declared layout on the GPUs of this node: what has to be done, and doing it whole or not at all.

`changes` is pure and decides; `apply` carries out, and puts everything back as it was when a step fails or when the result, read
again, is not what was wanted. A device that was destroyed and made again may have another UUID.

Nothing with a process is touched, nor anything whose processes are unknown. What is there and not in the layout is destroyed only
when the caller says `replace`, or names it. `keeper` does this on a running agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from mig_spawner.agent.driver.base import Driver, Instance
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.plan import Create, Destroy, Step, SwitchMode
from mig_spawner.domain.layout import Intent, NamedLayout, Seat, intend
from mig_spawner.errors import DriverError
from mig_spawner.wire.node import GPUDocument, Health, InstanceDocument

log = logging.getLogger(__name__)

Place = tuple[int, int, int]
"""Profile id, first memory slice and size."""
_NO_LEASE = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What leads one GPU to its layout.

    Attributes:
        refusal: why it cannot be done, a sentence; there are no steps then.
    """

    gpu_uuid: str
    steps: tuple[Step, ...] = ()
    refusal: str = ""

    @property
    def in_force(self) -> bool:
        return not self.steps and not self.refusal


@dataclass
class Outcome:
    """How an `apply` ended.

    Attributes:
        failure: why it did not succeed; empty if it did.
        left: what could not be put back after a failure, a sentence each.
    """

    done: list[Step] = field(default_factory=list)
    failure: str = ""
    left: list[str] = field(default_factory=list)


def seats(gpus: Sequence[GPUDocument]) -> list[Seat]:
    """The GPUs of a report as a layout sees them."""
    return [Seat(index, gpu.to_domain(), gpu.pci_device_id or None) for index, gpu in enumerate(gpus)]


def changes(gpu: GPUDocument, intent: Intent, *, replace: bool) -> Change:
    """What has to be done on a GPU so that it looks as intended.

    Args:
        replace: destroy idle instances that are not in the layout; otherwise their presence is a refusal.
    """
    places = {(p.profile_id, start, p.size) for p, start in intent.places}
    return changes_to(gpu, places, enabled=intent.enabled, replace=replace)


def changes_to(
    gpu: GPUDocument, places: set[Place], *, enabled: bool = True, replace: bool = False, goes: Collection[Place] = ()
) -> Change:
    """The same by places.

    Args:
        goes: places whose idle instances may be destroyed in any case.
    """
    try:
        return Change(gpu.gpu_uuid, tuple(_steps(gpu, places, enabled=enabled, replace=replace, goes=goes)))
    except _Refusal as refusal:
        return Change(gpu.gpu_uuid, refusal=str(refusal))


class _Refusal(Exception):
    """A sentence about why a GPU cannot be brought to its layout."""


def _steps(
    gpu: GPUDocument, wanted: set[Place], *, enabled: bool, replace: bool, goes: Collection[Place]
) -> list[Step]:
    there = {(i.profile_id, i.start, i.size): i for i in gpu.instances}
    kept = {place for place, i in there.items() if place in wanted and i.mig_uuid is not None}
    missing = sorted(wanted - kept, key=lambda place: place[1])
    extra = [i for place, i in there.items() if place not in kept]
    switch = gpu.mig_enabled is not enabled and not (gpu.mig_enabled is None and not enabled)
    if not (missing or extra or switch):
        return []
    if gpu.health is not Health.OK:
        raise _Refusal(f"It is {gpu.health}: {gpu.health_reason}")
    if gpu.mig_enabled is None:
        raise _Refusal("It has no MIG mode.")
    for instance in extra:
        _may_go(instance, wanted, replace=replace or (instance.profile_id, instance.start, instance.size) in goes)
    if switch and gpu.mig_enabled is False and gpu.processes != 0:
        raise _Refusal("A process runs on it, or that cannot be known, so its MIG mode cannot change.")
    steps: list[Step] = [Destroy(gpu.gpu_uuid, instance) for instance in extra]
    if switch:
        steps.append(SwitchMode(gpu.gpu_uuid, enabled, _NO_LEASE))
    steps += [Create(gpu.gpu_uuid, profile, start, size, _NO_LEASE) for profile, start, size in missing]
    return steps


def _may_go(instance: InstanceDocument, wanted: set[Place], *, replace: bool) -> None:
    name = f"{instance.profile or f'profile {instance.profile_id}'} at {instance.start}:{instance.size}"
    half_made = instance.mig_uuid is None and instance.processes == 0
    in_its_place = half_made and (instance.profile_id, instance.start, instance.size) in wanted
    if not replace and not in_its_place:
        raise _Refusal(f"{name} is there and not in the layout. Say that it may be replaced, or declare it.")
    if instance.processes != 0:
        known = "a process runs on it" if instance.processes else "its processes are not known"
        raise _Refusal(f"{name} is in the way, and {known}.")


def apply(driver: Driver, observer: Observer, planned: Sequence[Change], *, confirm: Callable[[], str]) -> Outcome:
    """Take all steps of all GPUs, or none.

    Args:
        confirm: looks at the GPUs again when all is done, and says what is still not as wanted; empty if it is.
    """
    outcome, undo = Outcome(), list[tuple[str, Callable[[], None]]]()
    try:
        for change in planned:
            for step in change.steps:
                log.info("GPU %s: %s", step.gpu_uuid, step)
                undo.append(_take(driver, step))
                outcome.done.append(step)
        outcome.failure = confirm()
    except DriverError as error:
        outcome.failure = str(error)
    if outcome.failure:
        observer.observe()  # what is there may have changed places or handles by a failed step
        for what, back in reversed(undo):
            try:
                back()
            except DriverError as error:
                outcome.left.append(f"Could not {what}: {error}")
    return outcome


def _take(driver: Driver, step: Step) -> tuple[str, Callable[[], None]]:
    """Take a step; what takes it back, in words and as a call."""
    gpu_uuid = step.gpu_uuid
    match step:
        case Destroy(_, seen):
            driver.destroy(_instance(gpu_uuid, seen))
            what = f"make profile {seen.profile_id} at {seen.start}:{seen.size} again"
            if seen.mig_uuid is None:
                return what, lambda: None  # it was no use to anybody
            return what, lambda: _make(driver, gpu_uuid, seen.profile_id, seen.start, seen.size)
        case SwitchMode(_, enabled):
            driver.set_mig_mode(gpu_uuid, enabled)
            return f"switch MIG mode {'off' if enabled else 'on'}", lambda: driver.set_mig_mode(gpu_uuid, not enabled)
        case Create(_, profile_id, start, size):
            made = driver.create(gpu_uuid, profile_id, start, size)
            return f"destroy what was made at {start}:{size}", lambda: driver.destroy(made)


def _make(driver: Driver, gpu_uuid: str, profile_id: int, start: int, size: int) -> None:
    driver.create(gpu_uuid, profile_id, start, size)


def _instance(gpu_uuid: str, seen: InstanceDocument) -> Instance:
    return Instance(
        gpu_uuid,
        seen.gpu_instance_id,
        seen.profile_id,
        seen.start,
        seen.size,
        seen.mig_uuid,
        int(seen.mig_uuid is not None),
    )


def planned(gpus: Sequence[GPUDocument], layout: NamedLayout, *, replace: bool) -> tuple[list[Change], list[str]]:
    """What leads a node to a layout, and what cannot be had of it whatever is done."""
    intents, findings = intend(layout, seats(gpus))
    by_uuid = {gpu.gpu_uuid: gpu for gpu in gpus}
    return [changes(by_uuid[i.gpu_uuid], i, replace=replace) for i in intents], [str(f) for f in findings if f.fatal]


def not_in_force(gpus: Sequence[GPUDocument], layout: NamedLayout) -> dict[str, str]:
    """The GPUs that do not look as their layout wants, each with a sentence."""
    found, _ = planned(gpus, layout, replace=True)
    return {c.gpu_uuid: c.refusal or f"Still to do: {'; '.join(map(str, c.steps))}." for c in found if not c.in_force}


__all__ = ["Change", "Outcome", "Place", "apply", "changes", "changes_to", "not_in_force", "planned", "seats"]
