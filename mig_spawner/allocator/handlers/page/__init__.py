"""The pages for people, rendered here: everything that matters works without JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mig_spawner.allocator.handlers.page.base import PageHandler
from mig_spawner.allocator.handlers.page.fleet import Map
from mig_spawner.allocator.handlers.page.own import Slices

PAGES: Final[Sequence[tuple[str, type[PageHandler]]]] = (
    ("", Slices),
    ("admin/map", Map),
)
"""What is served under the service prefix; `{…}` is one part of a path."""
