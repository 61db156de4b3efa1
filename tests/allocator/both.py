"""A rig on either database, for tests of what each of them does in its own way.

from tests.allocator.both import make_rig  # in a test module
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.allocator.conftest import MakeRig, rigs
from tests.allocator.rig import Clock

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=KINDS)
async def make_rig(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, empty_ledger: Path
) -> AsyncIterator[MakeRig]:
    """As `make_rig` of the conftest."""
    server = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    async with rigs(tmp_path, clock, empty_ledger, server) as make:
        yield make
