"""One look at the ledger for each page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.page.fleet import MapQuery, MapView, map_view
from mig_spawner.allocator.page.node import NodesView, NodeView, node_view, nodes_view
from mig_spawner.allocator.page.own import ExtendView, LeaseView, OwnView, extend_view, lease_view, own_view
from mig_spawner.allocator.page.past import AuditQuery, AuditView, EndedView, audit_view, ended_view
from mig_spawner.allocator.page.search import LeaseListView, LeaseQuery, lease_list_view
from mig_spawner.allocator.page.usage import QuotaQuery, QuotaView, UsageQuery, UsageView, quota_view, usage_view
from mig_spawner.allocator.service import Desk
from mig_spawner.domain.rule import Person

V = TypeVar("V")


class PageService:
    """What pages show. Every method blocks, reads, and changes nothing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def _look(self, view: Callable[[Ledger], V]) -> V:
        with self._desk.reading() as ledger:
            return view(ledger)

    def usage(self, query: UsageQuery) -> UsageView:
        return self._look(lambda ledger: usage_view(ledger, query))

    def quotas(self, query: QuotaQuery) -> QuotaView:
        return self._look(lambda ledger: quota_view(ledger, query))

    def own(self, person: Person | None) -> OwnView:
        """What a person holds; nothing for a service."""
        return self._look(lambda ledger: own_view(ledger, person))

    def ended(self, person: str, before: str) -> EndedView:
        return self._look(lambda ledger: ended_view(ledger, person, before))

    def lease(self, lease_id: str, *, person: str | None, sees_all: bool) -> LeaseView:
        return self._look(lambda ledger: lease_view(ledger, lease_id, person=person, sees_all=sees_all))

    def extend(self, lease_id: str, *, person: str | None, sees_all: bool) -> ExtendView:
        return self._look(lambda ledger: extend_view(ledger, lease_id, person=person, sees_all=sees_all))

    def map(self, query: MapQuery) -> MapView:
        return self._look(lambda ledger: map_view(ledger, query))

    def leases(self, query: LeaseQuery) -> LeaseListView:
        return self._look(lambda ledger: lease_list_view(ledger, query))

    def nodes(self, after: str) -> NodesView:
        return self._look(lambda ledger: nodes_view(ledger, after))

    def node(self, name: str) -> NodeView:
        return self._look(lambda ledger: node_view(ledger, name))

    def audit(self, query: AuditQuery) -> AuditView:
        return self._look(lambda ledger: audit_view(ledger, query))
