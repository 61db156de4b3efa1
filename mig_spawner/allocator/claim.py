"""What a pod says of its lease, in annotations that were written when it was created.

A ledger that was lost, or restored from an old copy, is rebuilt from these and from the reports of the agents. Whoever may create
pods may write anything there, so it is parsed here, once, and believed only where a node's report shows the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Holder
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.wire.node import MAX_GRID

USER_ID: Final = "mig-spawner/user-id"
USER_NAME: Final = "mig-spawner/user-name"
SERVER_NAME: Final = "mig-spawner/server-name"
PROFILE: Final = "mig-spawner/profile"
DEVICE: Final = "mig-spawner/device-uuid"
GPU: Final = "mig-spawner/gpu-uuid"
PLACEMENT: Final = "mig-spawner/placement"
CUT: Final = "mig-spawner/cut"
PICKED_BY_NODE: Final = "mig-spawner/picked-by-node"
GRANTED_AT: Final = "mig-spawner/granted-at"
EXPIRES_AT: Final = "mig-spawner/expires-at"
REQUIRED: Final = (USER_ID, PROFILE, DEVICE, GPU, PLACEMENT)

_KUBESPAWNER: Final = {USER_NAME: "hub.jupyter.org/username", SERVER_NAME: "hub.jupyter.org/servername"}
"""What KubeSpawner itself says, for pods that do not say it in our words."""

_GPU: Final = re.compile(r"GPU-[A-Za-z0-9/-]{1,120}")
_DEVICE: Final = re.compile(r"(?:MIG|GPU)-[A-Za-z0-9/-]{1,120}")
_PLACEMENT: Final = re.compile(r"(\d{1,2}):(\d{1,2})", re.ASCII)
_TRUTH: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Claim:
    """The lease that a pod says it lives on.

    Attributes:
        profile: None for a whole GPU.
        device_uuid: the `mig_uuid`, or the `gpu_uuid` of a whole GPU.
        node: where Kubernetes runs the pod; None while it is not scheduled.
        cut: the instance was made for this lease, so it is destroyed afterwards. What does not say so is left standing.
        granted_at: None where the pod does not say.
        expires_at: None for no limit.
        picked_by_node: the device is the ledger's word alone: its node has given the pod that one, or another one like it.
    """

    holder: Holder
    placement: Placement
    profile: ProfileName | None
    device_uuid: str
    node: str | None = None
    cut: bool = False
    granted_at: datetime | None = None
    expires_at: datetime | None = None
    picked_by_node: bool = False

    def __str__(self) -> str:
        place = self.placement
        return (
            f"{self.profile or 'the whole GPU'} ({self.device_uuid}) at {place.start}:{place.size} of {place.gpu_uuid}"
        )


def parse_claim(annotations: Mapping[str, str], node: str | None) -> Claim:
    """Read the annotations of a pod that runs on `node`.

    Raises:
        InvalidRequest: with a sentence that names the annotation that is missing or cannot be read.
    """
    missing = [name for name in REQUIRED if name not in annotations]
    if missing:
        raise InvalidRequest(f"it has no annotation {', '.join(missing)}")
    return Claim(
        holder=_holder(annotations),
        placement=_placement(annotations),
        profile=ProfileName.parse(annotations[PROFILE]) if annotations[PROFILE] else None,
        device_uuid=_matching(annotations, DEVICE, _DEVICE)[0],
        node=node,
        cut=_truth(annotations, CUT),
        picked_by_node=_truth(annotations, PICKED_BY_NODE),
        granted_at=_moment(annotations, GRANTED_AT),
        expires_at=_moment(annotations, EXPIRES_AT),
    )


def device_in(text: str | None) -> str | None:
    """The one device that a value such as `NVIDIA_VISIBLE_DEVICES` names; None when it names none, several or `all`."""
    return text if text is not None and _DEVICE.fullmatch(text) else None


def _holder(annotations: Mapping[str, str]) -> Holder:
    names = {name: annotations.get(name, annotations.get(other, "")) for name, other in _KUBESPAWNER.items()}
    holder = Holder(annotations[USER_ID], names[SERVER_NAME], names[USER_NAME])
    if not (holder.user_id + holder.server_name + holder.user_name).isprintable():
        raise InvalidRequest(f"its annotations {USER_ID}, {USER_NAME} and {SERVER_NAME} are no names")
    return holder


def _placement(annotations: Mapping[str, str]) -> Placement:
    start, size = (int(number) for number in _matching(annotations, PLACEMENT, _PLACEMENT).groups())
    if size < 1 or start + size > MAX_GRID:
        raise InvalidRequest(f"its annotation {PLACEMENT} names no memory slices of a GPU")
    return Placement(_matching(annotations, GPU, _GPU)[0], start, size)


def _matching(annotations: Mapping[str, str], name: str, pattern: re.Pattern[str]) -> re.Match[str]:
    match = pattern.fullmatch(annotations[name])
    if match is None:
        raise InvalidRequest(f"its annotation {name} cannot be read")
    return match


def _truth(annotations: Mapping[str, str], name: str) -> bool:
    """What does not say so is not so."""
    text = annotations.get(name, "false")
    if text not in _TRUTH:
        raise InvalidRequest(f"its annotation {name} is neither true nor false")
    return _TRUTH[text]


def _moment(annotations: Mapping[str, str], name: str) -> datetime | None:
    text = annotations.get(name, "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(f"its annotation {name} is no time with a zone")
