"""Runs that are kept in a file: what was done is not done again, and nothing else is taken for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.domain.gpu import GPU
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning import bench
from mig_spawner.planning.bench import Effort, House
from mig_spawner.planning.compare import compare
from mig_spawner.planning.fleet import Group, gpus_of
from mig_spawner.planning.kept import Kept, digest
from mig_spawner.planning.report import as_json
from mig_spawner.planning.rule import parse_apart, parse_quotas
from mig_spawner.planning.scenario import scenario
from mig_spawner.planning.setup import Knows, Setup

GPUS = gpus_of([Group("a30-24gb", 2)])
SETUPS = [Setup("first-fit"), Setup("best-fit")]
EFFORT = Effort(seeds=2, rehearsed=100)


def told(
    path: Path | None,
    setups: Sequence[Setup] = SETUPS,
    effort: Effort = EFFORT,
    *,
    gpus: Sequence[GPU] = GPUS,
    span: float = 2,
    house: House | None = None,
) -> str:
    return as_json(compare([scenario("small-1.0", gpus, span=span)], setups, effort, house=house, kept=Kept(path)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_what_was_done_is_not_done_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = told(path)
    assert fresh == told(None)
    assert count(path) == 2 * 2 + 2 + 1
    for name in ("run", "Repack", "optimum"):
        monkeypatch.delattr(bench, name)
    assert told(path) == fresh
    assert count(path) == 7


def test_more_seeds_and_setups_add_to_it(path: Path) -> None:
    told(path)
    more = told(path, [*SETUPS, Setup("auto")], replace(EFFORT, seeds=3))
    assert count(path) == 7 + 2 + 2 + 2
    assert more == told(None, [*SETUPS, Setup("auto")], replace(EFFORT, seeds=3))


def test_whatever_makes_a_difference_is_another_run(path: Path) -> None:
    lone, quick = [Setup("auto")], replace(EFFORT, seeds=1, bound=False)
    told(path, lone, quick)
    others: list[dict[str, Any]] = [
        {"span": 3.0},
        {"gpus": gpus_of([Group("a30-24gb", 3)])},
        {"house": House(parse_quotas(["a=1"]))},
        {"house": House(apart=parse_apart(["a,b,c"]))},
        {"setups": [Setup("auto", knows=Knows.NOTHING)]},
        {"setups": [Setup("auto", rule="in-order")]},
        {"effort": replace(quick, rehearsed=101)},
    ]
    for number, other in enumerate(others, start=2):
        told(path, **{"setups": lone, "effort": quick, **other})
        assert count(path) == number, other


def test_a_line_that_was_broken_off_is_run_again(path: Path) -> None:
    fresh = told(path)
    whole = path.read_text("utf-8")
    path.write_text(whole[:-40], "utf-8")
    assert told(path) == fresh
    assert path.read_text("utf-8") == whole


@pytest.mark.parametrize("text", ["arrival,duration\n", "{}\n", "[1]\n", "1\n"])
def test_a_file_of_something_else_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidRequest, match="line 1, is no run"):
        Kept(path)
    assert path.read_text("utf-8") == text


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        Kept(tmp_path)
    with pytest.raises(InvalidRequest, match="No run can be kept"):
        Kept(tmp_path / "nowhere" / "x").recall("a", "b", lambda: 1)


def test_a_digest_is_the_same_in_every_process() -> None:
    """Sets of words come in another order in each."""
    apart = parse_apart(["a,b,c,d,e"])
    code = """if True:
        from mig_spawner.planning.kept import digest
        from mig_spawner.planning.rule import parse_apart
        print(digest(parse_apart(["a,b,c,d,e"]), {"x", "y", "z"}))"""
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        assert out.stdout.strip() == digest(apart, {"x", "y", "z"})


def test_a_line_says_whose_run_it_is(path: Path) -> None:
    told(path)
    names = [json.loads(line)["run"] for line in path.read_text("utf-8").splitlines()]
    assert names[:3] == ["small-1.0, seed 1: first-fit", "small-1.0, seed 1: best-fit", "small-1.0, seed 1: the bound"]
    assert names[-1] == "small-1.0: the best possible"
