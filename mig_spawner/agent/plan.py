"""From observed to desired: which steps, in which order. Pure, and idempotent: a plan for what is already so is empty.

What it never does, whatever is desired: destroy an instance that it was not told to destroy (one exception below), destroy one
that has processes or whose processes are unknown, change the MIG mode of a GPU that is not idle and empty, or touch a GPU that
is static or sick; from one that is draining it still removes what is over. The exception is a half-made instance exactly where an
instance is desired: nothing can run on it, and it is what a create of ours leaves behind when it fails half-way.

What cannot be done is a failure with a reason and not a step; it spoils nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mig_spawner.domain.gpu import Placement
from mig_spawner.wire.node import (
    DesiredInstance,
    DesiredNode,
    DesiredWhole,
    GPUDocument,
    Health,
    InstanceDocument,
    StepFailure,
)


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy this instance: its lease has ended, or it is half-made and in the way of `lease_id`."""

    gpu_uuid: str
    instance: InstanceDocument
    lease_id: str | None = None

    def __str__(self) -> str:
        return f"destroy instance {self.instance.gpu_instance_id} at {self.instance.start}:{self.instance.size}"


@dataclass(frozen=True, slots=True)
class SwitchMode:
    """Switch MIG mode of an idle, empty GPU."""

    gpu_uuid: str
    enabled: bool
    lease_id: str

    def __str__(self) -> str:
        return f"switch MIG mode {'on' if self.enabled else 'off'}"


@dataclass(frozen=True, slots=True)
class Create:
    """Make an instance at this placement."""

    gpu_uuid: str
    profile_id: int
    start: int
    size: int
    lease_id: str

    def __str__(self) -> str:
        return f"create profile {self.profile_id} at {self.start}:{self.size}"


Step = Destroy | SwitchMode | Create


@dataclass(slots=True)
class Plan:
    """Steps in the order they must be taken, and what cannot be done."""

    steps: list[Step] = field(default_factory=list)
    failures: list[StepFailure] = field(default_factory=list)

    def cannot(self, wanted: DesiredInstance | DesiredWhole, step: str, reason: str) -> None:
        self.failures.append(StepFailure(lease_id=wanted.lease_id, gpu_uuid=wanted.gpu_uuid, step=step, reason=reason))


def plan(observed: Sequence[GPUDocument], desired: DesiredNode) -> Plan:
    """What to do so that `observed` becomes `desired`: every destroy before any change of mode before any create."""
    result = Plan()
    gpus = {gpu.gpu_uuid: gpu for gpu in observed}
    everything: list[DesiredInstance | DesiredWhole] = [*desired.instances, *desired.whole]
    for wanted in everything:
        gpu = gpus.get(wanted.gpu_uuid)
        if gpu is None:
            result.cannot(
                wanted, "find the GPU", f"This node has no GPU {wanted.gpu_uuid}, or it does not answer any more."
            )
        elif gpu.health is Health.BAD or (gpu.health is not Health.OK and _missing(wanted, gpu)):
            result.cannot(wanted, "use the GPU", f"GPU {wanted.gpu_uuid} is {gpu.health}: {gpu.health_reason}")
    for gpu in observed:
        if gpu.health is Health.OK:
            _plan_gpu(gpu, desired, result)
        elif gpu.health is Health.DRAINING and gpu.dynamic:
            result.steps += _leaving(gpu, desired, ())
    order: list[type[Step]] = [Destroy, SwitchMode, Create]
    result.steps.sort(key=lambda step: order.index(type(step)))
    return result


def _plan_gpu(gpu: GPUDocument, desired: DesiredNode, result: Plan) -> None:
    whole = [w for w in desired.whole if w.gpu_uuid == gpu.gpu_uuid]
    wanted = [i for i in desired.instances if i.gpu_uuid == gpu.gpu_uuid]
    missing = [w for w in wanted if _missing(w, gpu)]
    leaving = list(_leaving(gpu, desired, missing)) if gpu.dynamic else []
    result.steps += leaving
    staying = [i for i in gpu.instances if all(step.instance is not i for step in leaving)]
    if whole:
        _uncut(gpu, whole[0], staying, result)
        for instance in missing:
            result.cannot(instance, "create", f"GPU {gpu.gpu_uuid} is leased whole.")
    elif missing:
        _cut(gpu, missing, staying, result)


def _leaving(gpu: GPUDocument, desired: DesiredNode, missing: Sequence[DesiredInstance]) -> Iterator[Destroy]:
    """Instances to destroy: told so and idle, or half-made where one is missing. What is desired as well stays."""
    destroyable = {(d.profile_id, d.start, d.size) for d in desired.destroy if d.gpu_uuid == gpu.gpu_uuid}
    kept = {(i.profile_id, i.start, i.size) for i in desired.instances if i.gpu_uuid == gpu.gpu_uuid}
    waiting = {(m.profile_id, m.start, m.size): m.lease_id for m in missing}
    for instance in gpu.instances:
        place = (instance.profile_id, instance.start, instance.size)
        if instance.processes != 0:
            continue
        if place in waiting and instance.mig_uuid is None:
            yield Destroy(gpu.gpu_uuid, instance, waiting[place])
        elif place in destroyable and place not in kept:
            yield Destroy(gpu.gpu_uuid, instance)


def _missing(wanted: DesiredInstance | DesiredWhole, gpu: GPUDocument) -> bool:
    """Whether what is desired is not there yet, as far as can be seen."""
    match wanted:
        case DesiredWhole():
            return gpu.mig_enabled is True
        case DesiredInstance():
            place = (wanted.profile_id, wanted.start, wanted.size)
            made = [i for i in gpu.instances if i.mig_uuid is not None]
            return all((i.profile_id, i.start, i.size) != place for i in made)


def _uncut(gpu: GPUDocument, whole: DesiredWhole, staying: Sequence[InstanceDocument], result: Plan) -> None:
    if gpu.mig_enabled is not True:
        return
    step = "switch MIG mode off"
    if not gpu.dynamic:
        result.cannot(whole, step, f"GPU {gpu.gpu_uuid} is cut by its admin; this agent may not change it.")
    elif staying:
        result.cannot(whole, step, f"{_described(staying[0])} is still there.")
    elif gpu.processes != 0:
        result.cannot(whole, step, _busy(gpu))
    else:
        result.steps.append(SwitchMode(gpu.gpu_uuid, False, whole.lease_id))


def _cut(
    gpu: GPUDocument, missing: Sequence[DesiredInstance], staying: Sequence[InstanceDocument], result: Plan
) -> None:
    creates: list[Create] = []
    taken = [(i.start, i.size, _described(i)) for i in staying]
    for wanted in missing:
        reason = _why_not(gpu, wanted, taken)
        if reason is not None:
            result.cannot(wanted, f"create profile {wanted.profile_id} at {wanted.start}:{wanted.size}", reason)
            continue
        taken.append((wanted.start, wanted.size, f"the instance of lease {wanted.lease_id}"))
        creates.append(Create(gpu.gpu_uuid, wanted.profile_id, wanted.start, wanted.size, wanted.lease_id))
    if creates and gpu.mig_enabled is False:
        result.steps.append(SwitchMode(gpu.gpu_uuid, True, creates[0].lease_id))
    result.steps += creates


def _why_not(gpu: GPUDocument, wanted: DesiredInstance, taken: Sequence[tuple[int, int, str]]) -> str | None:
    if gpu.mig_enabled is None:
        return f"GPU {gpu.gpu_uuid} ({gpu.model}) has no MIG mode."
    if not gpu.dynamic:
        return f"GPU {gpu.gpu_uuid} is cut by its admin; this agent may not change it."
    if gpu.mig_enabled is False and gpu.processes != 0:
        return _busy(gpu)
    profile = next((p for p in gpu.profiles if p.profile_id == wanted.profile_id), None)
    if profile is None or wanted.start not in profile.starts or wanted.size != profile.size:
        return f"GPU {gpu.gpu_uuid} ({gpu.model}) has no profile {wanted.profile_id} at {wanted.start}:{wanted.size}."
    place = Placement(gpu.gpu_uuid, wanted.start, wanted.size)
    for start, size, what in taken:
        if place.overlaps(Placement(gpu.gpu_uuid, start, size)):
            return f"{what} is in the way."
    return None


def _described(instance: InstanceDocument) -> str:
    name = instance.profile or f"profile {instance.profile_id}"
    return f"GPU instance {instance.gpu_instance_id} ({name} at {instance.start}:{instance.size})"


def _busy(gpu: GPUDocument) -> str:
    if gpu.processes is None:
        return f"It is not known whether a process runs on the uncut GPU {gpu.gpu_uuid}."
    return f"A process runs on the uncut GPU {gpu.gpu_uuid}, so its MIG mode cannot change."
