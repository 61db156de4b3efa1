"""The pages for people, rendered here: everything that matters works without JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mig_spawner.allocator.handlers.page.base import PageHandler
from mig_spawner.allocator.handlers.page.fleet import Map
from mig_spawner.allocator.handlers.page.layout import Approve, Layouts, Reject
from mig_spawner.allocator.handlers.page.lease import End, Leases, Queue
from mig_spawner.allocator.handlers.page.menu import Menu
from mig_spawner.allocator.handlers.page.node import Cordon, Drain, Node, Nodes, Uncordon
from mig_spawner.allocator.handlers.page.own import Extend, LeasePage, Release, Slices
from mig_spawner.allocator.handlers.page.past import Audit, Ended
from mig_spawner.allocator.handlers.page.usage import QuotaPage, UsagePage

PAGES: Final[Sequence[tuple[str, type[PageHandler]]]] = (
    ("", Slices),
    ("history", Ended),
    ("leases/{id}", LeasePage),
    ("leases/{id}/extend", Extend),
    ("leases/{id}/release", Release),
    ("admin/map", Map),
    ("admin/leases", Leases),
    ("admin/leases/{id}/end", End),
    ("admin/queue", Queue),
    ("admin/nodes", Nodes),
    ("admin/nodes/{node}", Node),
    ("admin/nodes/{node}/cordon", Cordon),
    ("admin/nodes/{node}/uncordon", Uncordon),
    ("admin/nodes/{node}/drain", Drain),
    ("admin/layouts", Layouts),
    ("admin/layouts/{reshape}/approve", Approve),
    ("admin/layouts/{reshape}/reject", Reject),
    ("admin/menu", Menu),
    ("admin/quotas", QuotaPage),
    ("admin/usage", UsagePage),
    ("admin/audit", Audit),
)
"""What is served under the service prefix; `{…}` is one part of a path."""
