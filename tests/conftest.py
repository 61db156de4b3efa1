"""What holds for every test."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from kubernetes_asyncio import client

from mig_spawner.testing.kube.strict import strict

HERE: Final = Path(__file__).parent
TOGETHER: Final = ("browser", "spawner/hub")
"""Folders whose tests share something that takes long to start, and therefore a process (`pytest -n`)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes take a file at a time, so that fixtures of modules are set up once."""
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        group = next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def strict_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pod that a test has a Kubernetes client of this process make is valid to the last field.

    What other processes make on an embedded server goes before the `referee`.
    """
    monkeypatch.setattr(client.ApiClient, "request", strict(client.ApiClient.request))
