"""Fixtures of the tests of pages."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.allocator.rig import SERVICE_TOKEN
from tests.page.site import Site, site


@pytest.fixture(name="site")
async def site_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A running allocator with an empty ledger, whose people can log in."""
    for name in list(os.environ):
        if name.startswith(("JUPYTERHUB_", "MIG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", SERVICE_TOKEN)
    async with site(tmp_path) as running:
        yield running
