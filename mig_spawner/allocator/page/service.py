"""One look at the ledger for each page."""

from __future__ import annotations

from mig_spawner.allocator.page.fleet import MapQuery, MapView, map_view
from mig_spawner.allocator.page.own import OwnView, own_view
from mig_spawner.allocator.service import Desk


class PageService:
    """What pages show. Every method blocks, reads, and changes nothing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def map(self, query: MapQuery) -> MapView:
        with self._desk.reading() as ledger:
            return map_view(ledger, query)

    def own(self, person: str | None) -> OwnView:
        """What a person holds; nothing for a service."""
        with self._desk.reading() as ledger:
            return own_view(ledger, person)
