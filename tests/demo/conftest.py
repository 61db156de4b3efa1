"""Fixtures of the tests of the demo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.command import Command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """`mig-spawner …`; whatever a test started and did not end is ended."""
    command = Command(tmp_path)
    yield command
    command.end()
