"""The control plane as a fixture: one for the whole test session, started when the first test wants it.

from tests.controlplane.fixture import control_plane  # in a conftest.py
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mig_spawner.testing.controlplane.program import HOW
from mig_spawner.testing.controlplane.run import ControlPlane
from tests.controlplane.assets import in_ci, locate, provide


def assets_or_skip() -> Path:
    """The folder with the programs. Where it is not there yet, a test is skipped with the way to get it; in CI it is built."""
    found = locate(os.environ)
    if found is not None:
        return found
    if in_ci(os.environ):
        return provide(os.environ)
    pytest.skip(HOW)


_SHARED = pytest.StashKey[ControlPlane]()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A running control plane. Tests share it: each makes a namespace of its own and names its nodes after it."""
    # Each conftest.py that imports this fixture has it as one of its own. What was set up first is torn down last.
    if (running := pytestconfig.stash.get(_SHARED, None)) is not None:
        yield running
        return
    assets = await asyncio.to_thread(assets_or_skip)
    async with ControlPlane(assets, folder=tmp_path_factory.mktemp("controlplane")) as plane:
        pytestconfig.stash[_SHARED] = plane
        yield plane
        del pytestconfig.stash[_SHARED]
