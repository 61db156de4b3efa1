"""What somebody may expect who wants something of which none is free: how many are before them, and when the first must give back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime

from mig_spawner.allocator.kept.ends import Kind
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest
from mig_spawner.wire.availability import OfferDocument


def with_line(ledger: Ledger, offers: Iterable[OfferDocument], without: str = "") -> Iterator[OfferDocument]:
    """The offers, and for those of which none is free who waits, but for the lease `without`, and when the first lease ends that could
    make room.
    """
    with closing(ledger.tx.queue()) as queue:
        waiting = [lease for lease in queue if lease.lease_id != without]
    for offer in offers:
        if offer.free:
            yield offer
            continue
        ahead = sum(any(_would_take(request, offer) for request in lease.choices) for lease in waiting)
        starts, cannot_tell = (
            (None, None) if ledger.forecasts is None else ledger.forecasts.newcomer(ledger, offer.profile)
        )
        outlook = {"first_end": _first_end(ledger, offer), "starts_between": starts, "cannot_tell": cannot_tell}
        yield offer.model_copy(update={"waiting": ahead, **outlook})


def _would_take(request: Request, offer: OfferDocument) -> bool:
    match request:
        case SliceRequest(profile):
            return str(profile) == offer.profile
        case MemoryRequest(min_memory_gb):
            return offer.profile is not None and offer.memory_gb >= min_memory_gb
        case _:
            return offer.profile is None


def _first_end(ledger: Ledger, offer: OfferDocument) -> datetime | None:
    """The earliest agreed end of a lease of this size or more on a GPU of a model that offers it."""

    def could_make_room(kind: Kind) -> bool:
        model, whole, memory_mib = kind
        return model in offer.models and (whole if offer.profile is None else memory_mib >= offer.memory_mib)

    return ledger.facts.ends.first(could_make_room)
