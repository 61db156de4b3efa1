"""The lease: the time-bound right of one holder to one GPU instance.

    Queued ──► Granted ──► Ready ──► Active ──► Releasing ──► Closed
      ▲  │        │ │         └───────────────────▲            ▲
      │  └────────┼─┼──── cancelled, wait over ───┼────────────┘
      └─ cannot ──┘ └──── given up, not taken ────┘
         be made

Each state is a type that has only the fields it can have; a move is a function from one type to the next. Time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import Request
from mig_spawner.domain.rule import Person
from mig_spawner.errors import InvalidRequest

MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Holder:
    """The JupyterHub server that has the lease.

    The key is the hub's *id* of the user, since names may change while a server runs; the name is a label for people.
    """

    user_id: str
    server_name: str = ""
    user_name: str = ""

    def __post_init__(self) -> None:
        if (
            not self.user_id
            or len(self.user_id) > MAX_NAME
            or len(self.server_name) > MAX_NAME
            or len(self.user_name) > MAX_NAME
        ):
            raise InvalidRequest(f"A holder has a user id, and names of at most {MAX_NAME} characters.")

    @property
    def key(self) -> tuple[str, str]:
        return (self.user_id, self.server_name)

    @property
    def person(self) -> str:
        """Who it is, whether the hub asked for them or they did themselves: their name, or their id where it is not known."""
        return self.user_name or self.user_id

    def __str__(self) -> str:
        return f"{self.user_name or self.user_id}/{self.server_name}"


class EndReason(StrEnum):
    """Why a lease ended. A closed set: it is shown, counted and documented."""

    STOPPED = "stopped"
    """The holder gave it back."""
    CANCELLED = "cancelled"
    """The holder gave up while it waited or before its server ran."""
    START_FAILED = "start-failed"
    """The server did not come up."""
    WAIT_OVER = "wait-over"
    """Nothing became free within the time the holder was ready to wait."""
    NOT_TAKEN = "not-taken"
    """A device was ready and nobody took it in time."""
    EXPIRED = "expired"
    """The agreed duration is over."""
    HOLDER_LOST = "holder-lost"
    """No heartbeat and no pod for too long."""
    POD_GONE = "pod-gone"
    """The pod vanished without its hub saying so."""
    DEVICE_LOST = "device-lost"
    """The device disappeared under the lease."""
    NODE_REBOOTED = "node-rebooted"
    """The node booted, and the device went with it."""
    FORCED = "forced"
    """An admin ended it."""


class PodFate(StrEnum):
    """What is known about the pod of a lease that ends."""

    NONE = "none"
    """None was ever asked for."""
    GONE = "gone"
    """It is confirmed gone."""
    UNKNOWN = "unknown"
    """It may still run, or may still appear. Unknown is not gone."""


class Pick(StrEnum):
    """Who picks the device that a container gets."""

    LEDGER = "ledger"
    """We do: a pod is made for the device of its lease."""
    NODE = "node"
    """Its node, among those like the one of the lease. Which one it became is not known yet."""
    KNOWN = "known"
    """Its node did, and the lease is on that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """What every lease has.

    Attributes:
        lease_id: ours, never reused; a valid Kubernetes label value.
        request: the main choice, taken whenever it can be had.
        alternatives: what would do as well, in this order, when the main choice cannot be had now.
        priority: greater goes first; within one priority the order is that of arrival.
        unattended: its holder has left and will come back: what is ready for it has to be claimed within the claim window.
        claimed_at: when its holder came back; None if it never left, or is still away.
        queued_at: arrival time; kept when a lease goes back to the queue and when its request is changed.
        wait_until: give up when nothing was granted by then; None waits for ever.
        duration_s: how long it may be kept once granted, seconds; None for no limit.
        groups: the holder's groups at the hub when they asked.
        choice: the id of the menu's entry that it was asked by; empty for none.
        node: on this node alone; None for any.
        peak_memory_mib: the most memory its device was seen to use, MiB; None while that is not known.
        pick: who picks its device.
    """

    lease_id: str
    holder: Holder
    request: Request
    queued_at: datetime
    wait_until: datetime | None = None
    duration_s: float | None = None
    alternatives: tuple[Request, ...] = ()
    priority: int = 0
    groups: frozenset[str] = frozenset()
    choice: str = ""
    node: str | None = None
    peak_memory_mib: int | None = None
    unattended: bool = False
    claimed_at: datetime | None = None
    pick: Pick = Pick.LEDGER

    @property
    def choices(self) -> tuple[Request, ...]:
        """All that would do, the best first."""
        return (self.request, *self.alternatives)

    @property
    def person(self) -> Person:
        """Whom it is for, as the rules of the menu see them."""
        return Person(self.holder.person, self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(_Lease):
    """It waits.

    Attributes:
        avoid: GPUs on which an earlier grant could not be made, or used.
        earmark: the GPU on which nothing new is placed, since this lease has waited for too long.
    """

    avoid: frozenset[str] = frozenset()
    earmark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What was granted.

    Attributes:
        profile: None for a whole GPU.
        cut: the agent makes the instance for this lease and destroys it afterwards.
        share: part of the GPU's memory slices, 0 to 1.
        generation: counts grants; a MIG UUID may come back, a generation never does.
        choice: which of the choices it is: 0 the main one, 1 the first alternative.
    """

    node: str
    placement: Placement
    profile: ProfileName | None
    profile_id: int | None
    model: str
    memory_mib: int
    multiprocessors: int
    share: float
    cut: bool
    generation: int
    granted_at: datetime
    expires_at: datetime | None = None
    choice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(_Lease):
    """It has a placement; the device is being made."""

    grant: Grant
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(_Lease):
    """The device exists: `device_uuid` is the `mig_uuid`, or the `gpu_uuid` of a whole GPU."""

    grant: Grant
    device_uuid: str
    ready_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Active(_Lease):
    """Its holder has taken it. `seen_at` is the last heartbeat or sight of the pod."""

    grant: Grant
    device_uuid: str
    ready_at: datetime
    active_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing(_Lease):
    """It ends, and stays visible until its pod is gone and its device idle. `message` is what whoever ended it says to its holder."""

    grant: Grant
    device_uuid: str | None
    reason: EndReason
    releasing_at: datetime
    pod: PodFate
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed(_Lease):
    """It has ended and never changes again. `gpu_seconds` is whole-GPU time: share times seconds held."""

    grant: Grant | None
    device_uuid: str | None
    reason: EndReason
    closed_at: datetime
    gpu_seconds: float
    message: str = ""


Lease = Queued | Granted | Ready | Active | Releasing | Closed
Held = Granted | Ready | Active
"""The states from which a lease is given back."""
Placed = Held | Releasing
"""The states in which it has a place."""


def _kept(lease: Lease) -> dict[str, Any]:
    return {f.name: getattr(lease, f.name) for f in fields(_Lease)}


def grant(
    lease: Queued, decision: Decision, generation: int, now: datetime, expires_at: datetime | None, choice: int = 0
) -> Granted:
    """Queued → Granted. `choice` says which of the lease's choices the decision serves."""
    profile = decision.profile
    return Granted(
        **_kept(lease),
        avoid=lease.avoid,
        grant=Grant(
            node=decision.node,
            placement=decision.placement,
            profile=None if profile is None else profile.name,
            profile_id=None if profile is None else profile.profile_id,
            model=decision.gpu.model,
            memory_mib=decision.memory_mib,
            multiprocessors=decision.multiprocessors,
            share=decision.share,
            cut=decision.cut,
            generation=generation,
            granted_at=now,
            expires_at=expires_at,
            choice=choice,
        ),
    )


def make_ready(lease: Granted, device_uuid: str, now: datetime) -> Ready:
    """Granted → Ready: the agent saw the device."""
    return Ready(**_kept(lease), grant=lease.grant, device_uuid=device_uuid, ready_at=now)


def requeue(lease: Granted) -> Queued:
    """Granted → Queued at its old place: it could not be made, so that GPU is avoided."""
    return Queued(**_kept(lease), avoid=lease.avoid | {lease.grant.placement.gpu_uuid})


def activate(lease: Ready | Active, now: datetime) -> Active:
    """Ready → Active, or Active seen once more."""
    match lease:
        case Ready():
            return Active(
                **_kept(lease),
                grant=lease.grant,
                device_uuid=lease.device_uuid,
                ready_at=lease.ready_at,
                active_at=now,
                seen_at=now,
            )
        case Active():
            return Active(
                **_kept(lease),
                grant=lease.grant,
                device_uuid=lease.device_uuid,
                ready_at=lease.ready_at,
                active_at=lease.active_at,
                seen_at=now,
            )


def leave(lease: Queued | Granted | Ready) -> Queued | Granted | Ready:
    """Its holder goes away and will come back: what is ready has to be claimed."""
    return replace(lease, unattended=True, claimed_at=None)


def claim(lease: Queued | Granted | Ready, now: datetime) -> Queued | Granted | Ready:
    """Its holder has come back: from now on it is waited for, and there is no need to claim it once more."""
    return replace(lease, unattended=False, claimed_at=now)


def extend(lease: Held, expires_at: datetime) -> Held:
    """It may be kept until then, which is later than was agreed."""
    duration_s = (expires_at - lease.grant.granted_at).total_seconds()
    return replace(lease, duration_s=duration_s, grant=replace(lease.grant, expires_at=expires_at))


def relocate(lease: Placed, grant: Grant, device_uuid: str, pick: Pick) -> Placed:
    """It is on another device than was granted, since nobody but its node could choose."""
    match lease:
        case Granted():
            return replace(lease, grant=grant, pick=pick)
        case Ready() | Active() | Releasing():
            return replace(lease, grant=grant, device_uuid=device_uuid, pick=pick)


def cancel(lease: Queued, reason: EndReason, now: datetime, message: str = "") -> Closed:
    """Queued → Closed: nothing was held, so nothing has to be cleaned."""
    kept = _kept(lease) | {"message": message}
    return Closed(**kept, grant=None, device_uuid=None, reason=reason, closed_at=now, gpu_seconds=0.0)


def release(lease: Held, reason: EndReason, pod: PodFate, now: datetime, message: str = "") -> Releasing:
    """Granted, Ready or Active → Releasing."""
    return Releasing(
        **_kept(lease),
        grant=lease.grant,
        device_uuid=None if isinstance(lease, Granted) else lease.device_uuid,
        reason=reason,
        releasing_at=now,
        pod=pod,
        message=message,
    )


def close(lease: Releasing, now: datetime) -> Closed:
    """Releasing → Closed. The caller has seen that the pod is gone and the device idle."""
    held = max((now - lease.grant.granted_at).total_seconds(), 0.0)
    return Closed(
        **_kept(lease),
        grant=lease.grant,
        device_uuid=lease.device_uuid,
        reason=lease.reason,
        closed_at=now,
        gpu_seconds=held * lease.grant.share,
        message=lease.message,
    )
