"""The page on paths names tests that exist, and every test that walks a path in a hub."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "spawner"
PAGE = (ROOT / "docs" / "paths.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE)))


def names_in(file: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_each_test_that_is_named_exists(file: str) -> None:
    assert {name for named, name in NAMED if named == file} - names_in(TESTS / file) == set()


@pytest.mark.parametrize("files", ["hub/test_*.py", "cluster/test_path.py"])
def test_each_test_that_walks_a_path_is_named(files: str) -> None:
    found = sorted(TESTS.glob(files))
    assert found
    walked = {(f.relative_to(TESTS).as_posix(), name) for f in found for name in names_in(f)}
    assert walked - set(NAMED) == set()
