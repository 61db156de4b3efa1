"""What holds for every test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes_asyncio import client

from mig_spawner.testing.kube.strict import strict

HERE: Final = Path(__file__).parent
TOGETHER: Final = ("tests/browser/", "tests/spawner/hub/", "tests/spawner/screen/")
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Several processes take a file at a time, or a folder, so that what a file or a folder starts is started once.

    pytest-xdist has marks for that, which pytest 9.2 no longer lets it set.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return Together(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("_cov"):
        for item in items:
            if item.path.relative_to(HERE).as_posix().startswith(UNMEASURED):
                item.add_marker(pytest.mark.no_cover)


@pytest.fixture(autouse=True)
def strict_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pod that a test has a Kubernetes client of this process make is valid to the last field.

    What other processes make on an embedded server goes before the `referee`.
    """
    monkeypatch.setattr(client.ApiClient, "request", strict(client.ApiClient.request))
