"""MIGSpawner on a real control plane, with a hub's account and a kubelet that runs pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes_asyncio import client
from kubespawner import KubeSpawner
from kubespawner.clients import load_config

from mig_spawner.testing.controlplane.run import HUB, ControlPlane
from tests.controlplane.corner import Corner, corner
from tests.controlplane.fixture import control_plane

__all__ = ["control_plane", "corner"]


@pytest.fixture
async def kubeconfig(
    control_plane: ControlPlane, corner: Corner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """The hub's, in place of the one that leads nowhere."""
    path = control_plane.kubeconfig(tmp_path / "hub-kubeconfig.yaml", HUB.name)
    before = client.Configuration.get_default_copy()
    monkeypatch.setattr("kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.setattr(KubeSpawner, "reflectors", {})
    load_config.cache_clear()
    yield path
    for reflector in KubeSpawner.reflectors.values():
        await reflector.stop()
    load_config.cache_clear()
    client.Configuration.set_default(before)


@pytest.fixture
def admin_kubeconfig(control_plane: ControlPlane, tmp_path: Path) -> Path:
    return control_plane.kubeconfig(tmp_path / "admin-kubeconfig.yaml")
