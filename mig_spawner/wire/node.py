"""The agent's conversation: `PUT /api/v1/nodes/{node}` carries what was observed, the answer what is desired."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from mig_spawner.domain.gpu import GPU, Engines, Placement, Profile
from mig_spawner.domain.profile import ProfileName
from mig_spawner.wire.base import Answer, Count, Document, Label, Name, Text

MAX_GRID = 64
CUT_ANEW = "cut it anew"
"""The `step` of a failure that is about a `DesiredLayout`."""
Slice = Annotated[int, Field(ge=0, lt=MAX_GRID)]
Size = Annotated[int, Field(ge=1, le=MAX_GRID)]
Part = Annotated[float, Field(ge=0, le=1)]


class Health(StrEnum):
    """What the agent thinks of a GPU. Nothing is granted on one that is not ok."""

    OK = "ok"
    SUSPECT = "suspect"
    DRAINING = "draining"
    BAD = "bad"


class EnginesDocument(Document):
    copy_engines: Count = 0
    decoders: Count = 0
    encoders: Count = 0
    jpeg: Count = 0
    ofa: Count = 0


class ProfileDocument(Document):
    """A profile as the driver lists it. Units: MiB, memory slices, SMs."""

    name: Name
    profile_id: Count
    size: Size
    starts: Annotated[tuple[Slice, ...], Field(min_length=1, max_length=MAX_GRID)]
    compute_slices: Count
    memory_mib: Count
    multiprocessors: Count
    engines: EnginesDocument = EnginesDocument()

    @model_validator(mode="after")
    def _inside_the_grid(self) -> Self:
        ProfileName.parse(self.name)
        if max(self.starts) + self.size > MAX_GRID:
            raise ValueError(f"profile {self.name}: a placement ends after memory slice {MAX_GRID}")
        return self

    def to_domain(self) -> Profile:
        e = self.engines
        return Profile(
            name=ProfileName.parse(self.name),
            profile_id=self.profile_id,
            size=self.size,
            starts=tuple(sorted(self.starts)),
            compute_slices=self.compute_slices,
            memory_mib=self.memory_mib,
            multiprocessors=self.multiprocessors,
            engines=Engines(e.copy_engines, e.decoders, e.encoders, e.jpeg, e.ofa),
        )


class InstanceDocument(Document):
    """A GPU instance that exists.

    Attributes:
        mig_uuid: of the MIG device of its compute instance; None while half-made (no compute instance).
        processes: how many processes run on it; None if that cannot be known, and unknown is not idle.
        profile: for people; None if the driver's id is in no list.
    """

    gpu_instance_id: Count
    profile_id: Count
    profile: Name | None
    start: Slice
    size: Size
    mig_uuid: Name | None
    processes: Count | None


class GPUDocument(Document):
    """One GPU with all that is on it. Report it whole or with health `bad`, never half.

    Attributes:
        mig_enabled: the mode now; None for a GPU without MIG.
        dynamic: the agent may cut it.
        reshapable: the agent cuts its idle partitions anew when it is told to: `DesiredNode.layouts`.
        processes: on the GPU itself while MIG is off; None if unknown.
        pci_device_id: device and vendor as NVIDIA writes them, `0x20B210DE`; empty if unknown.
    """

    gpu_uuid: Name
    model: Name
    memory_mib: Count
    multiprocessors: Count
    mig_enabled: bool | None
    dynamic: bool
    reshapable: bool = False
    pci_device_id: Label = ""
    health: Health = Health.OK
    health_reason: Text = ""
    processes: Count | None = 0
    profiles: Annotated[tuple[ProfileDocument, ...], Field(max_length=64)] = ()
    instances: Annotated[tuple[InstanceDocument, ...], Field(max_length=MAX_GRID)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        grid = self.to_domain().grid
        taken = 0
        for instance in self.instances:
            mask = Placement(self.gpu_uuid, instance.start, instance.size).mask
            if self.profiles and instance.start + instance.size > grid:
                raise ValueError(
                    f"GPU {self.gpu_uuid}: an instance at {instance.start}:{instance.size} does not fit the grid of {grid}"
                )
            if taken & mask:
                raise ValueError(f"GPU {self.gpu_uuid}: two instances overlap at {instance.start}:{instance.size}")
            taken |= mask
        return self

    def to_domain(self) -> GPU:
        return GPU(
            self.gpu_uuid,
            self.model,
            self.memory_mib,
            self.multiprocessors,
            tuple(p.to_domain() for p in self.profiles),
        )


class StepFailure(Document):
    """A step of the plan that did not work: the lease it was for, if any, and the driver's reason."""

    lease_id: Name | None = None
    gpu_uuid: Name
    step: Text
    reason: Text


class UsageDocument(Document):
    """What a MIG device, or an uncut GPU, uses now. A figure that is not measured is None, which is not 0.

    Attributes:
        device_uuid: the `mig_uuid`; of an uncut GPU its own UUID.
        gpu_instance_id: as NVIDIA's dcgm-exporter names it (`GPU_I_ID`); None for an uncut GPU.
        memory_peak_mib: the most that the agent has seen since the device came.
        sm, tensor, dram: how busy it was since the last report, 0 to 1. GPUs before Hopper do not measure it.
    """

    gpu_uuid: Name
    device_uuid: Name
    gpu_instance_id: Count | None
    processes: Count | None = None
    memory_used_mib: Count | None = None
    memory_total_mib: Count | None = None
    memory_peak_mib: Count | None = None
    sm: Part | None = None
    tensor: Part | None = None
    dram: Part | None = None


class NodeReport(Document):
    """Everything an agent sees on its node, after it has applied `applied_generation`.

    Attributes:
        boot_id: changes when the node boots; instances do not survive that.
        applied_generation: of the last `DesiredNode` this report was made after; 0 before the first.
        simulated: the GPUs are a simulation, and whoever shows them must say so.
        problem: why nothing may be granted on the whole node, a sentence; empty if it may. An agent that cannot see its GPUs (the
            driver is missing) lists none of them: those it had are out of sight then, and not gone.
        usage: what the devices use. It changes with every report, the rest seldom.
    """

    agent_version: Name
    boot_id: Name
    applied_generation: Count = 0
    simulated: bool = False
    problem: Text = ""
    gpus: Annotated[tuple[GPUDocument, ...], Field(max_length=64)] = ()
    failures: Annotated[tuple[StepFailure, ...], Field(max_length=256)] = ()
    usage: Annotated[tuple[UsageDocument, ...], Field(max_length=1024)] = ()

    @model_validator(mode="after")
    def _each_gpu_once(self) -> Self:
        if len({g.gpu_uuid for g in self.gpus}) != len(self.gpus):
            raise ValueError("a GPU is reported twice")
        return self


class DesiredInstance(Answer):
    """A GPU instance that should exist, for a lease."""

    lease_id: str
    gpu_uuid: str
    profile_id: int
    start: int
    size: int


class DesiredWhole(Answer):
    """A GPU that should be uncut, for a lease: no instances, MIG mode off."""

    lease_id: str
    gpu_uuid: str


class DestroyableInstance(Answer):
    """An instance that was made for a lease that has ended: destroy it if it is still there and idle."""

    gpu_uuid: str
    profile_id: int
    start: int
    size: int


class DesiredPlace(Answer):
    """A place of an admin's partition."""

    profile_id: int
    start: int
    size: int


class DesiredLayout(Answer):
    """How the partitions of a GPU differ from what its admin declared or made: an approved proposal. All of it is made, or nothing.

    Attributes:
        remove: partitions that are not to be there. One with a process, or whose processes are not known, is never removed.
        make: partitions that are to be there instead.
    """

    gpu_uuid: str
    remove: tuple[DesiredPlace, ...] = ()
    make: tuple[DesiredPlace, ...] = ()


class DesiredNode(Answer):
    """What a node should look like. Whatever is in no list belongs to somebody else and is left alone.

    Attributes:
        layouts: for GPUs that are cut otherwise than declared.
        held: GPUs that are being cut anew, by `gpu_uuid`: nothing is granted on them until they are as desired. For people.
        generation: grows with every change; the agent repeats it in `NodeReport.applied_generation`.
        cordoned: for people; nothing new will be granted here.
    """

    generation: int
    instances: tuple[DesiredInstance, ...] = ()
    whole: tuple[DesiredWhole, ...] = ()
    destroy: tuple[DestroyableInstance, ...] = ()
    layouts: tuple[DesiredLayout, ...] = ()
    held: tuple[str, ...] = ()
    cordoned: bool = False


class NodeDrain(Document):
    """Drain a node. `message` is for those whose leases end; it is kept in the audit."""

    message: Text = ""
