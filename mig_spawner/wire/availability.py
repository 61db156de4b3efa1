"""What is free now: the document behind the spawn form and its live counts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from mig_spawner.wire.base import Answer, Document
from mig_spawner.wire.lease import RangeDocument


class OfferDocument(Answer):
    """One thing that can be leased, over all GPUs.

    Attributes:
        profile: None for a whole GPU.
        free: how many could be granted now, if nothing else came.
        total: how many the GPUs hold at most when nothing else is on them.
        memory_gb: as in the profile's name; of a whole GPU, its GiB rounded. The least of them where models differ.
        memory_mib: as the driver says it. Likewise the least.
        multiprocessors: SMs, likewise; `share` its part of the GPU's memory, 0 to 1, likewise.
        models: product names that offer it.
        reason: why none is free, a short sentence; empty while some are.
        waiting: how many wait for it, among others perhaps; counted while none is free.
        first_end: when the first who has one, or more, must give it back, while none is free; None when nobody can tell.
        starts_between: when somebody would begin who asked for it now, in steps of five minutes; while none is free, and as far as it can
            be told. `cannot_tell` says why not.
    """

    profile: str | None
    free: int
    total: int
    memory_gb: int
    memory_mib: int
    multiprocessors: int
    multiprocessors_total: int
    share: float
    models: tuple[str, ...]
    reason: str = ""
    waiting: int = 0
    first_end: datetime | None = None
    starts_between: RangeDocument | None = None
    cannot_tell: str | None = None


class Availability(Answer):
    """What can be leased now.

    Attributes:
        simulated: at least one node has simulated GPUs; say so wherever it is shown.
        nodes: how many nodes report; `nodes_silent` how many of them are too long silent to count.
    """

    as_of: datetime
    offers: tuple[OfferDocument, ...]
    queue_length: int
    nodes: int
    nodes_silent: int
    simulated: bool = False

    def offer(self, profile: str | None) -> OfferDocument | None:
        """The offer of a profile (as printed), or of whole GPUs for None."""
        return next((o for o in self.offers if o.profile == profile), None)


class TicketRequest(Document):
    """Ask, as the hub, for a ticket with which one person's browser may read availability."""

    user_name: Annotated[str, Field(min_length=1, max_length=255)]


class Ticket(Answer):
    """A short-lived signed right to read availability; a bearer token for `GET …/availability` and nothing else."""

    ticket: str
    expires_at: datetime
