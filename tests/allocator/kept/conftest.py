"""The databases of a ledger."""

from __future__ import annotations

from tests.allocator.store.conftest import lasting, place, postgres

__all__ = ["lasting", "place", "postgres"]
