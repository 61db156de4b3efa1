"""Leases on the wire: asking for one, reading one, giving it back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from mig_spawner.domain.device_name import PATTERN, spelled
from mig_spawner.domain.lease import EndReason, Holder, PodFate
from mig_spawner.domain.profile import NAME_PATTERN, ProfileName
from mig_spawner.domain.request import (
    MAX_ALTERNATIVES,
    MAX_PRIORITY,
    MIN_PRIORITY,
    DeviceRequest,
    MemoryRequest,
    Request,
    SliceRequest,
    WholeRequest,
)
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.base import Answer, Document, Label, Name, Text

Duration = Annotated[float, Field(gt=0, le=366 * 86400, allow_inf_nan=False)]
MenuChoice = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9._+-]*$")]
Seconds = Annotated[float, Field(ge=0, le=366 * 86400, allow_inf_nan=False)]


MAX_GROUPS: Final = 200


class HolderDocument(Document):
    """The server a lease is for. `user_id` is the hub's number of the user, as text; `user_name` a label for people."""

    user_id: Name
    server_name: Label = ""
    user_name: Label = ""

    def to_domain(self) -> Holder:
        return Holder(self.user_id, self.server_name, self.user_name)


_PROFILE = Field(
    examples=["mig-1g.10gb"],
    json_schema_extra={"pattern": f"^{NAME_PATTERN}$"},
)
_TYPES: dict[str, JsonValue] = {
    "accelerator_partition_type": {"type": "string"},
    "min_memory": {"type": "number"},
    "whole": {"const": True},
    "mig_uuid": {"type": "string"},
}
"""How each way of asking looks when it is used; null, or `whole: false`, is not to ask in this way."""


def _uses(*ways: str) -> dict[str, JsonValue]:
    return {"required": list(ways), "properties": {way: _TYPES[way] for way in ways}}


SEVERAL_WAYS: dict[str, JsonValue] = {"anyOf": [_uses(*pair) for pair in combinations(_TYPES, 2)]}
_ONE: list[JsonValue] = [_uses(way) for way in _TYPES]

PartitionType = Annotated[Name, _PROFILE]
Memory = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
DeviceName = Annotated[
    str,
    Field(max_length=128, pattern=f"^{PATTERN}$", examples=["MIG-2c4f8b7e-6d3a-5e1f-9b0a-1d2e3f4a5b6c"]),
    AfterValidator(spelled),
]


def _whole(value: object) -> object:
    """In JSON 5.0 is a whole number as well."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Priority = Annotated[int, Field(ge=MIN_PRIORITY, le=MAX_PRIORITY), BeforeValidator(_whole)]


class WaysOfAsking(Document):
    """The ways of asking."""

    accelerator_partition_type: PartitionType | None = None
    min_memory: Memory | None = None
    whole: bool = False
    mig_uuid: DeviceName | None = None

    @field_validator("accelerator_partition_type")
    @classmethod
    def _a_profile(cls, value: str | None) -> str | None:
        return None if value is None else str(ProfileName.parse(value))

    @model_validator(mode="after")
    def _one_way_of_asking(self) -> Self:
        if self._ways > 1:
            raise ValueError("ask in one way only: name a profile, a minimum memory, a device, or the whole GPU")
        return self

    @property
    def _ways(self) -> int:
        ways = (self.accelerator_partition_type, self.min_memory, self.mig_uuid, self.whole or None)
        return sum(way is not None for way in ways)

    @property
    def names_something(self) -> bool:
        """Whether it says what it wants in some way, rather than leaving it to the choice, or out for a whole GPU."""
        return self._ways > 0

    def to_domain(self) -> Request:
        """What is asked for; a whole GPU if nothing else is named."""
        if self.accelerator_partition_type is not None:
            return SliceRequest(ProfileName.parse(self.accelerator_partition_type))
        if self.min_memory is not None:
            return MemoryRequest(self.min_memory)
        if self.mig_uuid is not None:
            return DeviceRequest(self.mig_uuid)
        return WholeRequest()


class ChoiceDocument(WaysOfAsking):
    """One thing that would do: exactly one of a profile, a minimum memory, one MIG device by name, or `whole: true`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": _ONE})

    @model_validator(mode="after")
    def _some_way_of_asking(self) -> Self:
        if not self._ways:
            raise ValueError("say what: accelerator_partition_type, min_memory, mig_uuid, or whole: true")
        return self

    @classmethod
    def of(cls, request: Request) -> ChoiceDocument:
        """The document of a domain request."""
        return cls.model_validate(ways_of(request) or {"whole": True})


def ways_of(request: Request) -> dict[str, Any]:
    """The field that asks for this; none for a whole GPU."""
    match request:
        case SliceRequest(profile):
            return {"accelerator_partition_type": str(profile)}
        case MemoryRequest(min_memory_gb):
            return {"min_memory": min_memory_gb}
        case DeviceRequest(mig_uuid):
            return {"mig_uuid": mig_uuid}
        case WholeRequest():
            return {}


class LeaseRequest(WaysOfAsking):
    """Ask for a slice, in the manner of SageMaker: leave the fields that say what out for a whole GPU.

    Attributes:
        accelerator_partition_type: a MIG profile, `mig-1g.10gb` or `1g.10gb`.
        min_memory: any slice with at least so many GB.
        whole: a whole GPU, as when nothing is named.
        mig_uuid: one MIG device that an admin has made, by its name of either form, `MIG-<uuid>` or
            `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`.
        alternatives: what would do as well, in this order, where the main choice cannot be had at once. The main choice is taken
            whenever both could be had.
        holder: whom it is for. The same holder gets the same lease, however often it asks.
        wait_budget: how long to stay in the queue, seconds; 0 for "now or never", None to wait for ever.
        duration: how long it may be kept once granted, seconds; None for no limit.
        avoid_nodes: not on these nodes: a server found no room there.
        node: on this node alone, for a program that runs there already.
        priority: greater goes first. Services and admins set any; a person at most 0.
        choice: the id of an entry of the allocator's menu. It may stand alone, or beside what the entry says.
        unattended: nobody stands by: when its slice is ready it is offered until `claim_until`, and passes on if it is not claimed
            by then. Asking again without this claims it at once.
        groups: the holder's groups at the hub, said by the hub. Of a person who asks, the hub is asked instead.
        picked_by_node: a device plugin on the node picks its device among those like it, and whoever learns which one says so.
    """

    model_config = ConfigDict(json_schema_extra={"not": SEVERAL_WAYS})

    holder: HolderDocument
    alternatives: Annotated[tuple[ChoiceDocument, ...], Field(max_length=MAX_ALTERNATIVES)] = ()
    wait_budget: Seconds | None = None
    duration: Duration | None = None
    avoid_nodes: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    node: Name | None = None
    priority: Priority = 0
    choice: MenuChoice = ""
    groups: Annotated[tuple[Name, ...], Field(max_length=MAX_GROUPS)] = ()
    unattended: bool = False
    picked_by_node: bool = False

    def alternatives_to_domain(self) -> tuple[Request, ...]:
        return tuple(choice.to_domain() for choice in self.alternatives)

    @classmethod
    def of(
        cls,
        request: Request,
        holder: Holder,
        *,
        alternatives: Sequence[Request] = (),
        wait_budget: float | None = None,
        duration: float | None = None,
        priority: int = 0,
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
            alternatives=tuple(ChoiceDocument.of(choice) for choice in alternatives),
            wait_budget=wait_budget,
            duration=duration,
            priority=priority,
            **ways_of(request),
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


class RangeDocument(Answer):
    """Between two moments, as far as can be told."""

    earliest: datetime
    latest: datetime


_ENDED: Final = {
    EndReason.STOPPED: "It was given back.",
    EndReason.CANCELLED: "It was cancelled.",
    EndReason.START_FAILED: "Its server did not start.",
    EndReason.WAIT_OVER: "Nothing became free in the time it could wait. Ask again, wait longer, or choose something else.",
    EndReason.NOT_TAKEN: "Its slice was ready and nobody took it in time, so it has passed on to the next. Start the server again.",
    EndReason.EXPIRED: "Its time was over.",
    EndReason.HOLDER_LOST: "Nothing was heard of its server for too long.",
    EndReason.POD_GONE: "Its pod was gone.",
    EndReason.DEVICE_LOST: "Its device disappeared. Start the server again; tell an admin if it happens often.",
    EndReason.NODE_REBOOTED: "Its node was restarted, and its slice went with it. Start the server again.",
    EndReason.FORCED: "An admin ended it.",
}


def ended_text(reason: EndReason, message: str) -> str:
    """How a lease ended, and what whoever ended it says."""
    said = f" \N{LEFT DOUBLE QUOTATION MARK}{message}\N{RIGHT DOUBLE QUOTATION MARK}" if message else ""
    return f"{_ENDED[reason]}{said}"


class LeaseDocument(Answer):
    """A lease as anybody sees it.

    Attributes:
        asked: the main choice, in words.
        alternatives: what would do as well, in words, in the order of preference.
        granted_choice: which of the choices was granted: 0 the main one, 1 the first alternative; from Granted on.
        choice: the id of the menu's entry that it was asked by; empty for none.
        placement: from Granted on.
        device_uuid: from Ready on: what the container must see.
        device_known: false where the node picks the device, and it is not known yet whether it is this one or another like it.
        position: place in the queue, 1 is next; only while Queued.
        starts_between: when it will be granted, as far as can be told; only while Queued.
        cannot_tell: why there is no `starts_between`, a sentence; only while Queued.
        unattended: its holder has left, and will come back.
        claim_until: its slice is ready and passes on to the next if it is not claimed by then.
        reason: why it ends or ended; only when Releasing or Closed.
        message: what whoever ended it says to its holder; empty for nothing.
        detail: a sentence for people: what it waits for now, or what to do.
        peak_memory_mib: the most memory its device was seen to use, MiB; None while that is not known.
    """

    lease_id: str
    holder: HolderDocument
    state: LeaseState
    asked: str
    choice: str = ""
    queued_at: datetime
    alternatives: tuple[str, ...] = ()
    priority: int = 0
    granted_choice: int | None = None
    placement: PlacementDocument | None = None
    device_uuid: str | None = None
    device_known: bool = True
    position: int | None = None
    queue_length: int | None = None
    starts_between: RangeDocument | None = None
    cannot_tell: str | None = None
    unattended: bool = False
    claim_until: datetime | None = None
    reason: EndReason | None = None
    message: str = ""
    detail: str = ""
    gpu_seconds: float | None = None
    peak_memory_mib: int | None = None

    @property
    def open(self) -> bool:
        return self.state is not LeaseState.CLOSED

    @property
    def ending(self) -> str:
        """How it ends or ended, in words; empty while it does not."""
        return "" if self.reason is None else ended_text(self.reason, self.message)

    @property
    def memory_bytes(self) -> int | None:
        """Memory of what was granted, in bytes, as `GPU_MEM_LIMIT` says it."""
        return None if self.placement is None else self.placement.memory_mib * 1024 * 1024


class LeaseRelease(Document):
    """Give a lease back. Say honestly what is known of the pod: the slice stays held while it may still run.

    Attributes:
        message: for whoever holds it; kept with the lease and in the audit.
    """

    reason: EndReason = EndReason.STOPPED
    pod: PodFate = PodFate.UNKNOWN
    pod_name: Text = ""
    message: Text = ""


class LeaseExtension(Document):
    """Keep a lease for longer.

    Attributes:
        duration: how long it may be kept in all, counted from when it was granted, seconds. What is less than was agreed changes nothing.
    """

    duration: Duration


class LeaseList(Answer):
    """Leases, oldest first.

    Attributes:
        next: the `cursor` of the page that follows; None when there is none.
    """

    leases: tuple[LeaseDocument, ...]
    next: str | None = None
