"""The server that the tests are about, and the one that all tests share."""

from __future__ import annotations

from tests.postgres.fixture import postgres

__all__ = ["postgres"]
