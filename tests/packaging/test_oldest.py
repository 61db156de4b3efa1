"""What `make test-hub5` installs follows from `pyproject.toml` alone."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.packaging.oldest import PYPROJECT, constraints


def project(*dependencies: str, **extras: list[str]) -> dict[str, Any]:
    return {
        "dependencies": list(dependencies),
        "optional-dependencies": {"agent": [], "allocator": [], "hub": [], **extras},
    }


def test_every_lower_bound_becomes_the_version() -> None:
    lines = constraints(project("click>=8.1", "PyYAML>=6.0.1", hub=["psycopg[binary]>=3.2.1", "pyyaml>=6.0.1"]))
    assert lines == ["click==8.1", "psycopg==3.2.1", "pyyaml==6.0.1"]


@pytest.mark.parametrize("requirement", ["click", "click>8", "click==8.1", "click>=8,<9", "click~=8.1", "click>=8; x"])
def test_what_has_no_plain_lower_bound_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="oldest version"):
        constraints(project(requirement))


def test_two_bounds_of_one_thing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rich is wanted from 13.7 in one place and from 14"):
        constraints(project("rich>=13.7", agent=["rich>=14"]))


def test_all_that_a_part_needs_has_one() -> None:
    lines = constraints(tomllib.loads(PYPROJECT.read_text())["project"])
    names = {line.partition("==")[0] for line in lines}
    assert {"jupyterhub", "jupyterhub-kubespawner", "pydantic", "httpx", "tornado", "traitlets", "sqlalchemy"} <= names
