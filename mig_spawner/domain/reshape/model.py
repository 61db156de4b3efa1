"""A proposal to cut a GPU anew, and what becomes of it.

    proposed ──► approved ──► applying ──► applied ──► returning ──► withdrawing ──► returned
       │            │             └─ could not be made ─► withdrawing ──► failed
       └────────────┴──► rejected, expired

`withdrawing`: the agent is told no more, and nothing is granted on the GPU until it has said that it knows. On a GPU that is cut on demand
what was left over is simply gone, so there it comes between `applying` and `applied` as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from mig_spawner.errors import InvalidRequest, InvalidTransition


class ReshapeState(StrEnum):
    """Where a proposal stands."""

    PROPOSED = "proposed"
    """It waits for somebody to say yes."""
    APPROVED = "approved"
    """It is to be applied: at once, or when its time comes."""
    APPLYING = "applying"
    """The agent is told. Nothing is granted on the GPU."""
    APPLIED = "applied"
    """The GPU is cut so."""
    RETURNING = "returning"
    """It is to be cut as before, when nobody uses what was made. Nothing is granted on the GPU."""
    WITHDRAWING = "withdrawing"
    """The agent is told no more. Nothing is granted on the GPU until it knows."""
    RETURNED = "returned"
    """The GPU is cut as before again."""
    REJECTED = "rejected"
    """Somebody said no."""
    EXPIRED = "expired"
    """It made no sense any more; the reason says why."""
    FAILED = "failed"
    """It could not be made; the reason says why. The GPU is as before."""


S = ReshapeState
CLOSED: Final = frozenset({S.RETURNED, S.REJECTED, S.EXPIRED, S.FAILED})
_MOVES: Final[Mapping[ReshapeState, frozenset[ReshapeState]]] = {
    S.PROPOSED: frozenset({S.APPROVED, S.REJECTED, S.EXPIRED}),
    S.APPROVED: frozenset({S.APPLYING, S.REJECTED, S.EXPIRED}),
    S.APPLYING: frozenset({S.APPLIED, S.WITHDRAWING, S.FAILED}),
    S.APPLIED: frozenset({S.RETURNING, S.EXPIRED}),
    S.RETURNING: frozenset({S.WITHDRAWING, S.EXPIRED}),
    S.WITHDRAWING: frozenset({S.APPLIED, S.FAILED, S.RETURNED}),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A partition as an agent knows it."""

    profile: str
    profile_id: int
    start: int
    size: int

    @property
    def mask(self) -> int:
        return ((1 << self.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a cut would do for those who wait, as the forecasts of the queue have it.

    Attributes:
        before_s: in how many seconds the first of them is expected to begin as things are; None if nobody can tell.
        after_s: the same with the cut.
        people: how many would begin earlier. Nobody would begin later.
    """

    before_s: float | None
    after_s: float
    people: int

    def gain_s(self) -> float:
        """How much earlier the first of them would begin; endless where nobody can tell as things are."""
        return float("inf") if self.before_s is None else self.before_s - self.after_s


@dataclass(frozen=True, slots=True)
class Window:
    """From when to when a cut is to hold; None for at once, and for as long as nobody takes it back."""

    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.starts_at is not None and self.ends_at is not None and self.starts_at >= self.ends_at:
            raise InvalidRequest("A cut begins before it ends: starts_at is before ends_at.")

    def begun(self, now: datetime) -> bool:
        return self.starts_at is None or self.starts_at <= now

    def over(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now


@dataclass(frozen=True, slots=True)
class Reshape:
    """A proposal.

    Attributes:
        standing: an admin declares how the GPU is cut, so the agent is told of the change for as long as it holds.
        asked: what the first of those waits for whom it is.
        before, after: all partitions of the GPU, now and then.
        by: who approved it; empty before.
        reason: why it is where it is, a sentence; empty where that needs none.
        generation: what the agent has to know before the next step is believed.
        end: what it becomes after `withdrawing`.
    """

    reshape_id: str
    node: str
    gpu_uuid: str
    state: ReshapeState
    proposed_at: datetime
    changed_at: datetime
    remove: tuple[Place, ...]
    make: tuple[Place, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    standing: bool
    asked: str
    effect: Effect
    window: Window = Window()
    by: str = ""
    reason: str = ""
    generation: int = 0
    end: ReshapeState | None = None

    @property
    def closed(self) -> bool:
        """Nothing will become of it any more. What has gone from a GPU that is cut on demand is done with, if nothing brings it back."""
        gone_for_good = self.state is S.APPLIED and not self.standing and self.window.ends_at is None
        return self.state in CLOSED or gone_for_good

    @property
    def under_way(self) -> bool:
        """It has been approved, and is not yet where it is to be."""
        return self.state in (S.APPROVED, S.APPLYING, S.RETURNING, S.WITHDRAWING)


def move(
    before: Reshape,
    to: ReshapeState,
    now: datetime,
    *,
    reason: str = "",
    by: str | None = None,
    window: Window | None = None,
    generation: int | None = None,
    end: ReshapeState | None = None,
) -> Reshape:
    """The next step of its life.

    Raises:
        InvalidTransition: there is no such step.
    """
    if to not in _MOVES.get(before.state, ()):
        raise InvalidTransition(f"A proposal that is {before.state} cannot become {to}.")
    return replace(
        before,
        state=to,
        changed_at=now,
        reason=reason,
        by=before.by if by is None else by,
        window=before.window if window is None else window,
        generation=before.generation if generation is None else generation,
        end=end,
    )
