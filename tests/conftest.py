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
UNMEASURED: Final = (
    "allocator/test_model.py",
    "bench/",
    "domain/test_index.py",
    "domain/test_property.py",
    "domain/test_saturation.py",
    "planning/test_allocator.py",
)
"""Tests that do the same thousands of times. Tracing them takes minutes and shows no line that others do not reach."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes take a file at a time, so that fixtures of modules are set up once."""
    measures = config.pluginmanager.hasplugin("_cov")
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        if measures and file.startswith(UNMEASURED):
            item.add_marker(pytest.mark.no_cover)
        group = next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def strict_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pod that a test has a Kubernetes client of this process make is valid to the last field.

    What other processes make on an embedded server goes before the `referee`.
    """
    monkeypatch.setattr(client.ApiClient, "request", strict(client.ApiClient.request))
