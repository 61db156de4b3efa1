"""The queue on the wire: who waits, why, and for how long; changing what one waits for; why a lease is where it is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from mig_spawner.domain.request import MAX_ALTERNATIVES
from mig_spawner.wire.base import Answer
from mig_spawner.wire.lease import (
    SEVERAL_WAYS,
    ChoiceDocument,
    Duration,
    HolderDocument,
    LeaseDocument,
    MenuChoice,
    Priority,
    RangeDocument,
    Seconds,
    WaysOfAsking,
)
from mig_spawner.wire.pool import PoolDocument


class LeaseChange(WaysOfAsking):
    """Change a lease that waits. What is left out stays; the time of arrival stays in any case.

    Attributes:
        accelerator_partition_type: ask for this profile instead; `min_memory`, `whole`, `mig_uuid` and `choice` likewise.
        alternatives: instead of those there are; an empty list for none.
        wait_budget: how long to stay in the queue from now on, seconds; null to wait for ever.
        duration: how long it may be kept once granted, seconds; null for no limit.
        priority: greater goes first. Services and admins set any; a person at most 0.
        unattended: true when its holder leaves and will come back: what is ready has to be claimed then. This may be said
            until the lease is taken.
    """

    model_config = ConfigDict(json_schema_extra={"not": SEVERAL_WAYS})

    choice: MenuChoice = ""
    alternatives: Annotated[tuple[ChoiceDocument, ...], Field(max_length=MAX_ALTERNATIVES)] | None = None
    wait_budget: Seconds | None = None
    duration: Duration | None = None
    priority: Priority | None = None
    unattended: bool | None = None

    @model_serializer(mode="wrap")
    def _what_was_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what was left out: null would say something."""
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}

    def says(self, field: str) -> bool:
        """Whether a field was given, be it with null."""
        return field in self.model_fields_set


class QueueEntry(Answer):
    """Somebody who waits.

    Attributes:
        position: 1 is next.
        yours: whether the caller is its holder.
        lease_id: for its holder and admins only, as is `holder`.
        why: a sentence: why it is not served now.
        starts_between: when it will begin, as far as can be told.
        cannot_tell: why there is no `starts_between`.
        earmarked: a GPU is being emptied for it.
    """

    position: int
    asked: str
    alternatives: tuple[str, ...] = ()
    priority: int = 0
    queued_at: datetime
    why: str
    earmarked: bool = False
    starts_between: RangeDocument | None = None
    cannot_tell: str | None = None
    yours: bool = False
    lease_id: str | None = None
    holder: HolderDocument | None = None


class QueueDocument(Answer):
    """The queue, next first.

    Attributes:
        next: the `cursor` of the page that follows; None when there is none.
    """

    as_of: datetime
    length: int
    entries: tuple[QueueEntry, ...]
    next: str | None = None


class CandidateDocument(Answer):
    """A place where a lease could be, or is.

    Attributes:
        chosen: it is there.
        free: whether it could be had now.
        rank: how the policy judges it, less is better: between GPUs, then between the starts of one; None where the policy is not
            asked, since a device stands there, or the GPU is had whole.
        starts: when it could begin there by what was agreed.
        unknown: of how many leases that have to end there before nobody knows when they will.
        choice: which of its choices it would be: 0 the main one.
        verdict: a sentence.
        fragmentation: what is free on that GPU and yet does not fit, as a sentence; empty if nothing is, or it can be had now.
    """

    node: str
    gpu_uuid: str
    profile: str | None
    start: int
    size: int
    choice: int
    chosen: bool
    free: bool
    rank: tuple[int, int] | None = None
    starts: datetime | None = None
    unknown: int = 0
    verdict: str
    fragmentation: str = ""


class StepDocument(Answer):
    """One step of a lease's life. `before` is None for its arrival."""

    at: datetime
    before: str | None
    after: str
    why: str


class ExplainDocument(Answer):
    """Why a lease is where it is, or why it is nowhere yet.

    Attributes:
        policy: by which candidates are ranked.
        candidates: the best places, as things are now and as if this lease had none, best first.
        pools: those with GPUs that could serve it, now or later, and how broken up they are.
        ahead: those who are served before it; the nearest to it when there are many.
        history: what has happened to it, oldest first.
    """

    lease: LeaseDocument
    why: str
    policy: str
    candidates: tuple[CandidateDocument, ...]
    pools: tuple[PoolDocument, ...] = ()
    ahead: tuple[QueueEntry, ...] = ()
    history: tuple[StepDocument, ...]
