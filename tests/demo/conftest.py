"""Fixtures of the tests of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.fixture import control_plane
from tests.demo.command import Command
from tests.kube.referee import referee

__all__ = ["control_plane", "referee"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """`mig-spawner …`; whatever a test started and did not end is ended."""
    command = Command(tmp_path)
    yield command
    command.end()
