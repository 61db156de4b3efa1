"""The real control plane, and a namespace of each test's own."""

from __future__ import annotations

from tests.controlplane.corner import corner
from tests.controlplane.fixture import control_plane

__all__ = ["control_plane", "corner"]
