"""Leases to rows and back. A row is parsed into the one type that its state names, or it is refused."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping

from mig_spawner.allocator.claim import Claim
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import (
    Active,
    Closed,
    EndReason,
    Grant,
    Granted,
    Holder,
    Lease,
    Pick,
    PodFate,
    Queued,
    Ready,
    Releasing,
)
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest

_HISTORY = ("ready_at", "active_at", "seen_at", "releasing_at", "pod_fate")
"""What a lease that ends no longer needs, and those who count its hours do: left in the row."""

_EMPTY: dict[str, Any] = dict.fromkeys(
    [
        "node",
        "gpu_uuid",
        "start",
        "size",
        "profile",
        "profile_id",
        "model",
        "memory_mib",
        "multiprocessors",
        "share",
        "cut",
        "generation",
        "granted_at",
        "expires_at",
        "device_uuid",
        "ready_at",
        "active_at",
        "seen_at",
        "reason",
        "releasing_at",
        "pod_fate",
        "closed_at",
        "gpu_seconds",
        "choice_number",
        "message",
    ]
)


def state_of(lease: Lease) -> str:
    """The state as it is stored and shown: `queued` … `closed`."""
    return type(lease).__name__.lower()


def grant_of(lease: Lease) -> Grant | None:
    """What a lease holds or held."""
    return None if isinstance(lease, Queued) else lease.grant


def to_row(lease: Lease) -> dict[str, Any]:
    """The columns to write, all but the number. What a state does not have becomes NULL; times of a lease that ends are left."""
    ends = isinstance(lease, (Releasing, Closed))
    row = {
        **{column: None for column in _EMPTY if not (ends and column in _HISTORY)},
        "lease_id": lease.lease_id,
        "user_id": lease.holder.user_id,
        "server_name": lease.holder.server_name,
        "user_name": lease.holder.user_name,
        "state": state_of(lease),
        "open": not isinstance(lease, Closed),
        **_request_row(lease.request),
        "alternatives": json.dumps([_request_row(request) for request in lease.alternatives]),
        "priority": lease.priority,
        "unattended": lease.unattended,
        "claimed_at": lease.claimed_at,
        "earmark": lease.earmark if isinstance(lease, Queued) else None,
        "queued_at": lease.queued_at,
        "wait_until": lease.wait_until,
        "duration_s": lease.duration_s,
        "peak_memory_mib": lease.peak_memory_mib,
        "avoid": json.dumps(sorted(lease.avoid) if isinstance(lease, (Queued, Granted)) else []),
        "groups": json.dumps(sorted(lease.groups)),
        "choice": lease.choice,
        "only_node": lease.node,
        "pick": lease.pick.value,
        **_grant_row(grant_of(lease)),
    }
    match lease:
        case Queued() | Granted():
            return row
        case Ready():
            return row | {"device_uuid": lease.device_uuid, "ready_at": lease.ready_at}
        case Active():
            return row | {
                "device_uuid": lease.device_uuid,
                "ready_at": lease.ready_at,
                "active_at": lease.active_at,
                "seen_at": lease.seen_at,
            }
        case Releasing():
            return row | {
                "device_uuid": lease.device_uuid,
                "reason": lease.reason.value,
                "message": lease.message or None,
                "releasing_at": lease.releasing_at,
                "pod_fate": lease.pod.value,
            }
        case Closed():
            return row | {
                "device_uuid": lease.device_uuid,
                "reason": lease.reason.value,
                "message": lease.message or None,
                "closed_at": lease.closed_at,
                "gpu_seconds": lease.gpu_seconds,
            }


def _request_row(request: Request) -> dict[str, Any]:
    return {
        "request_profile": str(request.profile) if isinstance(request, SliceRequest) else None,
        "request_memory_gb": request.min_memory_gb if isinstance(request, MemoryRequest) else None,
        "request_device": request.mig_uuid if isinstance(request, DeviceRequest) else None,
    }


def _grant_row(grant: Grant | None) -> dict[str, Any]:
    if grant is None:
        return {}
    return {
        "node": grant.node,
        "gpu_uuid": grant.placement.gpu_uuid,
        "start": grant.placement.start,
        "size": grant.placement.size,
        "profile": None if grant.profile is None else str(grant.profile),
        "profile_id": grant.profile_id,
        "model": grant.model,
        "memory_mib": grant.memory_mib,
        "multiprocessors": grant.multiprocessors,
        "share": grant.share,
        "cut": grant.cut,
        "generation": grant.generation,
        "granted_at": grant.granted_at,
        "expires_at": grant.expires_at,
        "choice_number": grant.choice,
    }


def from_row(row: RowMapping) -> Lease:
    """The lease of a row.

    Raises:
        ValueError: the row has a state that does not exist.
    """
    kept: dict[str, Any] = {
        "lease_id": row["lease_id"],
        "holder": Holder(row["user_id"], row["server_name"], row["user_name"]),
        "request": _request(row),
        "queued_at": row["queued_at"],
        "wait_until": row["wait_until"],
        "duration_s": row["duration_s"],
        "alternatives": tuple(_request(choice) for choice in json.loads(row["alternatives"])),
        "priority": row["priority"],
        "groups": frozenset(json.loads(row["groups"])),
        "choice": row["choice"],
        "node": row["only_node"],
        "peak_memory_mib": row["peak_memory_mib"],
        "unattended": row["unattended"],
        "claimed_at": row["claimed_at"],
        "pick": Pick(row["pick"]),
    }
    match row["state"]:
        case "queued":
            return Queued(**kept, avoid=_avoid(row), earmark=row["earmark"])
        case "granted":
            return Granted(**kept, grant=_grant(row), avoid=_avoid(row))
        case "ready":
            return Ready(**kept, grant=_grant(row), device_uuid=row["device_uuid"], ready_at=row["ready_at"])
        case "active":
            return Active(
                **kept,
                grant=_grant(row),
                device_uuid=row["device_uuid"],
                ready_at=row["ready_at"],
                active_at=row["active_at"],
                seen_at=row["seen_at"],
            )
        case "releasing":
            return Releasing(
                **kept,
                grant=_grant(row),
                device_uuid=row["device_uuid"],
                reason=EndReason(row["reason"]),
                releasing_at=row["releasing_at"],
                pod=PodFate(row["pod_fate"]),
                message=row["message"] or "",
            )
        case "closed":
            return Closed(
                **kept,
                grant=None if row["gpu_uuid"] is None else _grant(row),
                device_uuid=row["device_uuid"],
                reason=EndReason(row["reason"]),
                closed_at=row["closed_at"],
                gpu_seconds=row["gpu_seconds"],
                message=row["message"] or "",
            )
        case other:
            raise ValueError(f"Lease {row['lease_id']} is in the state {other!r}, which this version does not know.")


def _request(row: RowMapping | dict[str, Any]) -> Request:
    if row["request_profile"] is not None:
        return SliceRequest(ProfileName.parse(row["request_profile"]))
    if row["request_memory_gb"] is not None:
        return MemoryRequest(row["request_memory_gb"])
    if row["request_device"] is not None:
        return DeviceRequest(row["request_device"])
    return WholeRequest()


def _avoid(row: RowMapping) -> frozenset[str]:
    return frozenset(json.loads(row["avoid"]))


def _grant(row: RowMapping) -> Grant:
    return Grant(
        node=row["node"],
        placement=Placement(row["gpu_uuid"], row["start"], row["size"]),
        profile=None if row["profile"] is None else ProfileName.parse(row["profile"]),
        profile_id=row["profile_id"],
        model=row["model"],
        memory_mib=row["memory_mib"],
        multiprocessors=row["multiprocessors"],
        share=row["share"],
        cut=row["cut"],
        generation=row["generation"],
        granted_at=row["granted_at"],
        expires_at=row["expires_at"],
        choice=row["choice_number"] or 0,
    )


def claim_to_text(claim: Claim | None) -> str | None:
    """What a pod says of its lease, as one value."""
    if claim is None:
        return None
    holder, place = claim.holder, claim.placement
    return json.dumps(
        {
            "holder": [holder.user_id, holder.server_name, holder.user_name],
            "placement": [place.gpu_uuid, place.start, place.size],
            "profile": None if claim.profile is None else str(claim.profile),
            "device_uuid": claim.device_uuid,
            "node": claim.node,
            "cut": claim.cut,
            "picked_by_node": claim.picked_by_node,
            "granted_at": None if claim.granted_at is None else claim.granted_at.isoformat(),
            "expires_at": None if claim.expires_at is None else claim.expires_at.isoformat(),
        }
    )


def claim_from_text(text: str | None) -> Claim | None:
    """The claim that `claim_to_text` wrote."""
    if text is None:
        return None
    row = json.loads(text)
    return Claim(
        holder=Holder(*row["holder"]),
        placement=Placement(*row["placement"]),
        profile=None if row["profile"] is None else ProfileName.parse(row["profile"]),
        device_uuid=row["device_uuid"],
        node=row["node"],
        cut=row["cut"],
        picked_by_node=row.get("picked_by_node", False),
        granted_at=None if row["granted_at"] is None else datetime.fromisoformat(row["granted_at"]),
        expires_at=None if row["expires_at"] is None else datetime.fromisoformat(row["expires_at"]),
    )
