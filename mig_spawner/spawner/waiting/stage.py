"""The stages of a start, as the events of its progress tell of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal

KEY: Final = "mig"
"""The key of ours in an event: `{"stage": the stage that goes on now, "at": since when}`."""


class Stage(StrEnum):
    """What goes on; each is over when the next one begins."""

    WAITING = "waiting"
    HELD = "held"
    NODE = "node"
    IMAGE = "image"
    CHECKED = "checked"
    OPEN = "open"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS: Final = {
    Stage.WAITING: "Waiting for a slice",
    Stage.HELD: "Slice held",
    Stage.NODE: "Node ready",
    Stage.IMAGE: "Image loaded",
    Stage.CHECKED: "Slice checked",
    Stage.OPEN: "Open",
}
_OF_A_SLICE: Final = (Stage.WAITING, Stage.HELD, Stage.CHECKED)


@dataclass(frozen=True, slots=True)
class StageView:
    """One line of the room.

    Attributes:
        state: over, going on, or yet to come.
        at: when it began; None where it did not, or nobody saw it.
        reason: the last that was said in it.
    """

    id: str
    label: str
    state: Literal["done", "now", "next"]
    at: datetime | None = None
    reason: str = ""


def mark(stage: Stage) -> dict[str, Any]:
    """What an event says of the stage that goes on with it."""
    return {KEY: {"stage": stage.value, "at": datetime.now(UTC).isoformat(timespec="seconds")}}


def stages_of(events: Iterable[Mapping[str, Any]], *, gpu: bool, checked: bool) -> tuple[StageView, ...]:
    """The lines of the room.

    Args:
        events: of the progress, in their order.
        gpu: the server is to have a GPU.
        checked: the slice is compared with the lease before the server opens.
    """
    began: dict[Stage, datetime] = {}
    reasons: dict[Stage, str] = {}
    current: Stage | None = None
    for event in events:
        said = event.get(KEY)
        if isinstance(said, Mapping) and said.get("stage"):
            current = Stage(said["stage"])
            began.setdefault(current, datetime.fromisoformat(said["at"]))
        if current is not None and event.get("message"):
            reasons[current] = str(event["message"])
    stages = [s for s in Stage if (gpu or s not in _OF_A_SLICE) and (checked or s is not Stage.CHECKED)]
    at = stages.index(current) if current in stages else -1
    return tuple(
        StageView(
            stage.value,
            stage.label,
            "done" if number < at else "now" if number == max(at, 0) else "next",
            began.get(stage),
            reasons.get(stage, ""),
        )
        for number, stage in enumerate(stages)
    )


def pod_stage(pod: Mapping[str, Any] | None, *, checked: bool) -> tuple[Stage, str] | None:
    """What a pod says of its start: the stage that goes on, and a sentence; None before it has a node."""
    if pod is None:
        return None
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        return None
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    notebook = next((s for s in statuses if s.get("name") == "notebook"), None)
    state = (notebook or {}).get("state") or {}
    if state.get("running") is not None:
        if checked:
            return Stage.CHECKED, "The container runs, and its slice is being checked."
        return Stage.OPEN, "The container runs, and the server is about to answer."
    why = state.get("waiting") or {}
    detail = f" ({str(why['message'])[:200]})" if why.get("message") else ""
    return Stage.IMAGE, f"The pod is on {node}, and its image is being loaded{detail}."
