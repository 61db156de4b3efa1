"""PostgreSQL as a fixture: one server for the whole test session, started when the first test wants it.

from tests.postgres.fixture import postgres  # in a conftest.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.controlplane.assets import in_ci
from tests.postgres.server import PostgresMissing, Server

_SHARED = pytest.StashKey[Server]()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A running server. Tests share it: each makes a database of its own."""
    # Each conftest.py that imports this fixture has it as one of its own. What was set up first is torn down last.
    if (running := pytestconfig.stash.get(_SHARED, None)) is not None:
        yield running
        return
    with server_or_skip() as server:
        pytestconfig.stash[_SHARED] = server
        yield server
        del pytestconfig.stash[_SHARED]


def server_or_skip(*, durable: bool = False) -> Server:
    """A server to start. Where there are no programs for it, a test is skipped with the way to get them; in CI it fails."""
    try:
        return Server(durable=durable)
    except PostgresMissing as missing:
        if in_ci(os.environ):
            raise
        pytest.skip(str(missing))
