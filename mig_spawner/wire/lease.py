"""Leases on the wire: asking for one, reading one, giving it back."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from mig_spawner.domain.lease import EndReason, Holder, PodFate
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.base import Answer, Document, Label, Name, Text

Seconds = Annotated[float, Field(ge=0, le=366 * 86400, allow_inf_nan=False)]


class HolderDocument(Document):
    """The server a lease is for. `user_id` is the hub's number of the user, as text; `user_name` a label for people."""

    user_id: Name
    server_name: Label = ""
    user_name: Label = ""

    def to_domain(self) -> Holder:
        return Holder(self.user_id, self.server_name, self.user_name)


_PROFILE = Field(
    examples=["mig-1g.10gb"],
    json_schema_extra={"pattern": r"^(mig-)?[1-9][0-9]?g\.[0-9]{1,4}gb([+.]me\.all|[+.]me|-me|[+.]gfx)?$"},
)
_BOTH: dict[str, JsonValue] = {
    "required": ["accelerator_partition_type", "min_memory"],
    "properties": {"accelerator_partition_type": {"type": "string"}, "min_memory": {"type": "number"}},
}


class LeaseRequest(Document):
    """Ask for a slice, in the manner of SageMaker: leave both accelerator fields out for a whole GPU.

    Attributes:
        accelerator_partition_type: a MIG profile, `mig-1g.10gb` or `1g.10gb`.
        min_memory: any slice with at least so many GB.
        holder: whom it is for. The same holder gets the same lease, however often it asks.
        wait_budget: how long to stay in the queue, seconds; 0 for "now or never", None to wait for ever.
        duration: how long it may be kept once granted, seconds; None for no limit.
        avoid_nodes: not on these nodes: a server found no room there.
    """

    model_config = ConfigDict(json_schema_extra={"not": _BOTH})

    holder: HolderDocument
    accelerator_partition_type: Annotated[Name, _PROFILE] | None = None
    min_memory: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = None
    wait_budget: Seconds | None = None
    duration: Annotated[float, Field(gt=0, le=366 * 86400, allow_inf_nan=False)] | None = None
    avoid_nodes: Annotated[tuple[Name, ...], Field(max_length=64)] = ()

    @field_validator("accelerator_partition_type")
    @classmethod
    def _a_profile(cls, value: str | None) -> str | None:
        return None if value is None else str(ProfileName.parse(value))

    @model_validator(mode="after")
    def _one_way_of_asking(self) -> Self:
        if self.accelerator_partition_type is not None and self.min_memory is not None:
            raise ValueError("name a profile or a minimum memory, not both")
        return self

    def to_domain(self) -> Request:
        if self.accelerator_partition_type is not None:
            return SliceRequest(ProfileName.parse(self.accelerator_partition_type))
        if self.min_memory is not None:
            return MemoryRequest(self.min_memory)
        return WholeRequest()

    @classmethod
    def of(
        cls, request: Request, holder: Holder, *, wait_budget: float | None = None, duration: float | None = None
    ) -> LeaseRequest:
        """The document that asks for a domain request.

        Raises:
            InvalidRequest: the holder has a name that the allocator does not take.
        """
        try:
            named = HolderDocument(user_id=holder.user_id, server_name=holder.server_name, user_name=holder.user_name)
        except ValidationError as error:
            raise InvalidRequest(
                f"The name {str(holder)[:80]!r} has a control character. Choose another name for the server."
            ) from error
        return cls(
            holder=named,
            accelerator_partition_type=str(request.profile) if isinstance(request, SliceRequest) else None,
            min_memory=request.min_memory_gb if isinstance(request, MemoryRequest) else None,
            wait_budget=wait_budget,
            duration=duration,
        )


class LeaseState(StrEnum):
    QUEUED = "queued"
    GRANTED = "granted"
    READY = "ready"
    ACTIVE = "active"
    RELEASING = "releasing"
    CLOSED = "closed"


class PlacementDocument(Answer):
    """What was granted. Memory in MiB; `share` is the part of the GPU's memory slices, 0 to 1; `profile` None for a whole GPU.

    Attributes:
        cut: the instance is made for this lease and destroyed after it; otherwise it stands by itself.
    """

    node: str
    gpu_uuid: str
    model: str
    start: int
    size: int
    profile: str | None
    memory_mib: int
    multiprocessors: int
    share: float
    generation: int
    granted_at: datetime
    expires_at: datetime | None
    cut: bool = False


class LeaseDocument(Answer):
    """A lease as anybody sees it.

    Attributes:
        asked: what was asked for, in words.
        placement: from Granted on.
        device_uuid: from Ready on: what the container must see.
        position: place in the queue, 1 is next; only while Queued.
        reason: why it ends or ended; only when Releasing or Closed.
        detail: a sentence for people: what it waits for now, or what to do.
    """

    lease_id: str
    holder: HolderDocument
    state: LeaseState
    asked: str
    queued_at: datetime
    placement: PlacementDocument | None = None
    device_uuid: str | None = None
    position: int | None = None
    queue_length: int | None = None
    reason: EndReason | None = None
    detail: str = ""
    gpu_seconds: float | None = None

    @property
    def open(self) -> bool:
        return self.state is not LeaseState.CLOSED

    @property
    def memory_bytes(self) -> int | None:
        """Memory of what was granted, in bytes, as `GPU_MEM_LIMIT` says it."""
        return None if self.placement is None else self.placement.memory_mib * 1024 * 1024


class LeaseRelease(Document):
    """Give a lease back. Say honestly what is known of the pod: the slice stays held while it may still run."""

    reason: EndReason = EndReason.STOPPED
    pod: PodFate = PodFate.UNKNOWN
    pod_name: Text = ""


class LeaseList(Answer):
    """Leases, oldest first.

    Attributes:
        next: the `cursor` of the page that follows; None when there is none.
    """

    leases: tuple[LeaseDocument, ...]
    next: str | None = None
