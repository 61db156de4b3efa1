"""`mig-spawner simulate`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mig_spawner.cli import main

SMALL = ["--gpu", "a100-80gb:2", "--span", "5", "--rehearsed", "100", "--seeds", "2"]


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


def test_a_table_on_the_terminal_and_progress_beside_it() -> None:
    result = simulate("--scenario", "steady-notebook-1.0", "--policy", "best-fit", "--policy", "auto", *SMALL)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("steady-notebook-1.0\n")
    assert "best-fit" in result.stdout
    assert "simulating" in result.stderr
    assert "simulating" not in result.stdout


def test_the_same_twice_into_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        output = tmp_path / f"{name}.json"
        result = simulate(
            "--scenario", "steady-notebook-1.0", *SMALL, "--json", "--output", str(output), "--quiet",
            "--layout", "dynamic", "--layout", "all-1g", "--plot", str(tmp_path / f"{name}.svg"),
        )  # fmt: skip
        assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    rows = json.loads((tmp_path / "a.json").read_text("utf-8"))["rows"]
    assert [row["layout"] for row in rows] == ["dynamic"] * 4 + ["all-1g"]


def test_a_trace_that_was_saved_can_be_played(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    saved = simulate("--scenario", "steady-uniform-1.0", "--policy", "best-fit", *SMALL, "--save-trace", str(path))
    assert saved.exit_code == 0, saved.output
    played = simulate("--trace", str(path), "--policy", "best-fit", "--gpu", "a100-80gb:2", "--csv")
    assert played.exit_code == 0, played.output
    assert played.stdout.splitlines()[1].startswith("t.csv,best-fit,dynamic,refuse,demand,")


def test_how_the_nodes_are_cut_today_beside_cutting_on_demand(tmp_path: Path) -> None:
    today = tmp_path / "today.yaml"
    today.write_text(
        "version: v1\nmig-configs:\n"
        "  halves:\n    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}\n"
        "  wholes:\n    - {devices: [0], mig-enabled: true, mig-devices: {7g.80gb: 1}}\n",
        "utf-8",
    )
    result = simulate(
        "--scenario", "steady-skew-big-1.3", "--policy", "best-fit", "--policy", "auto", *SMALL, "--json", "--quiet",
        "--today", str(today), "--per-node", "1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = {(row["policy"], row["layout"]): row for row in json.loads(result.stdout)["rows"]}
    assert set(rows) == {("best-fit", "dynamic"), ("auto", "dynamic"), ("best-fit", "halves"), ("best-fit", "wholes")}
    # A 3g, and whatever is smaller, but never a 7g is to be had of halves; of wholes everything is.
    on_demand, halves, wholes = (
        rows["best-fit", name]["refused_by_profile"] for name in ("dynamic", "halves", "wholes")
    )
    assert halves["7g.80gb"] > max(on_demand["7g.80gb"], wholes["7g.80gb"])
    beside = simulate("--scenario", "steady-skew-big-1.3", *SMALL, "--quiet", "--today", str(tmp_path / "nowhere"))
    assert "cannot be read" in beside.stderr


def test_the_list_of_scenarios() -> None:
    assert "mis-specified-notebook-as-skew-big" in simulate("--list").stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param([], "Name a --scenario", id="nothing"),
        pytest.param(["--scenario", "x"], "'x' is no scenario", id="scenario"),
        pytest.param(["--scenario", "steady-uniform-1.0", "--policy", "x"], "'x' is no policy", id="policy"),
        pytest.param(["--scenario", "steady-uniform-1.0", "--gpu", "x:2"], "'x' is no GPU model", id="gpu"),
        pytest.param(["--trace", "nowhere.csv"], "cannot be read", id="trace"),
        pytest.param(["--scenario", "steady-uniform-0.7", "--layout", "x", *SMALL], "'x' is no layout", id="layout"),
        pytest.param(["--scenario", "steady-uniform-0.7", "--quota", "x"], "GROUP=GPUS", id="quota"),
        pytest.param(
            ["--scenario", "moving-1.0", "--policy", "best-fit", *SMALL, "--output", "/nowhere/x"], "cannot be written",
            id="output",
        ),
        pytest.param(["--scenario", "moving-1.0", *SMALL, "--save-trace", "/nowhere/x"], "cannot be written", id="save"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_sentence(arguments: list[str], sentence: str) -> None:
    result = simulate(*arguments, "--quiet")
    assert result.exit_code != 0
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_one_way_of_writing_at_a_time() -> None:
    both = CliRunner().invoke(main, ["simulate", "--list", "--json", "--csv"])
    assert (both.exit_code, "not both" in both.output) == (2, True)
