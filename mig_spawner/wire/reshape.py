"""Proposals to cut idle partitions anew, on the wire."""

from __future__ import annotations

from datetime import datetime

from mig_spawner.domain.reshape import ReshapeState
from mig_spawner.wire.base import Answer, Document, Text


class ReshapeDocument(Answer):
    """A proposal to cut the idle partitions of a GPU anew, and what became of it.

    Attributes:
        gpu: which of its node's GPUs, counted from 0 as its agent does; None if the node does not show it any more.
        pool: of the node.
        summary: what and what for, a sentence.
        before, after: all partitions of the GPU, now and then, `3g.40gb@4` with the first memory slice.
        remove, make: those that go and those that come.
        asked: what the first of those waits for whom it is.
        wait_before, wait_after: in how many seconds they are expected to begin, as things were when it was proposed and with the cut;
            None if nobody could tell.
        people: how many would begin earlier. Nobody would begin later.
        starts_at, ends_at: the time for which it was approved; None for at once, and until it is taken back.
        by: who approved it, `rule` for the rule of the configuration; empty before.
        reason: why it is where it is; empty where that needs no reason.
        stale: why it could not be applied now; empty if it could, and for those that are under way, hold or have ended.
    """

    reshape_id: str
    node: str
    gpu_uuid: str
    gpu: int | None
    pool: str
    state: ReshapeState
    summary: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    remove: tuple[str, ...]
    make: tuple[str, ...]
    asked: str
    wait_before: float | None
    wait_after: float
    people: int
    proposed_at: datetime
    changed_at: datetime
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    by: str = ""
    reason: str = ""
    stale: str = ""


class ReshapeList(Answer):
    """Proposals of which something may still become or that hold, oldest first; then the last that have ended, newest first."""

    reshapes: tuple[ReshapeDocument, ...]
    ended: tuple[ReshapeDocument, ...] = ()


class ReshapeApproval(Document):
    """Say yes to a proposal.

    Attributes:
        starts_at: not before; null for at once.
        ends_at: taken back then, as soon as nobody uses what was made; null for never.
    """

    starts_at: datetime | None = None
    ends_at: datetime | None = None


class ReshapeRejection(Document):
    """Say no to a proposal, or take back one that holds. `message` is kept in the audit."""

    message: Text = ""
