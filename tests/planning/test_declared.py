"""What a plan writes: layouts that every other part of us, and mig-parted, can read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mig_spawner.cli import main
from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.layout import Declaration, NamedLayout, Part, read, to_mig_parted, to_ours
from mig_spawner.domain.profile import ProfileName
from mig_spawner.planning.declared import cuts_of, declare
from mig_spawner.planning.fleet import Cut, Group, gpus_of


def cut(*names: str) -> Cut:
    return tuple(map(ProfileName.parse, names))


def fleet(text: str) -> list[GPU]:
    return gpus_of([Group.parse(part) for part in text.split()])


def alike(cuts: list[Cut], others: list[Cut]) -> bool:
    return [Counter(c) for c in cuts] == [Counter(c) for c in others]


@pytest.mark.parametrize("write", [to_ours, lambda declaration: to_mig_parted(declaration)[0]], ids=["ours", "parted"])
def test_a_plan_goes_to_a_file_and_back(write: object) -> None:
    gpus = fleet("a100-80gb:4")
    cuts = [cut(*["1g.10gb"] * 7), cut("3g.40gb", "1g.10gb"), (), cut(*["1g.10gb"] * 7)]
    declared = declare(list(zip(gpus, cuts, strict=True)))
    parsed = read(write(declared.declaration), yaml.safe_load)  # type: ignore[operator]
    assert not parsed.findings
    (layout,) = parsed.declaration.layouts.values()
    assert layout.name == "planned"
    back, findings = cuts_of(layout, gpus)
    assert not findings
    assert alike(back, cuts)
    assert declared.notes == (f"planned: 1 node with 4 x {gpus[0].model}",)


def test_nodes_that_are_cut_alike_share_a_layout() -> None:
    gpus = fleet("a100-80gb:5 h100-80gb:2")
    small, whole = cut("1g.10gb"), cut("7g.80gb")
    cuts = [small, whole, small, whole, small, small, whole]
    declared = declare(list(zip(gpus, cuts, strict=True)), per_node=2)
    assert [note.partition(" x")[0] for note in declared.notes] == [
        "planned-1: 2 nodes with 2", "planned-2: 1 node with 1", "planned-3: 1 node with 2"
    ]  # fmt: skip
    assert "H100" in declared.notes[2]
    first = declared.declaration.layouts["planned-1"]
    back, _ = cuts_of(first, gpus, per_node=2)
    assert alike(back, cuts)


def test_what_cannot_be_had_is_told_and_left_whole() -> None:
    wide = NamedLayout("wide", (Part((0,), (), True, {"1g.10gb": 9}), Part((1,), (), True, {"2g.20gb": 3})))
    cuts, findings = cuts_of(wide, fleet("a100-80gb:4"), per_node=2)
    assert alike(cuts, [(), cut(*["2g.20gb"] * 3), (), cut(*["2g.20gb"] * 3)])
    assert [str(f) for f in findings] == [
        "wide, part 1, GPU 0: 9 x 1g.10gb do not fit on NVIDIA A100-SXM4-80GB: it holds 7."
    ]


def test_a_part_for_another_model_does_not_count() -> None:
    parts = (Part(None, ("0x233010DE",), True, {"7g.80gb": 1}), Part(None, ("0x20B210DE",), True, {"1g.10gb": 7}))
    cuts, _ = cuts_of(NamedLayout("by-model", parts), fleet("a100-80gb:1 h100-80gb:1"))
    assert alike(cuts, [cut(*["1g.10gb"] * 7), cut("7g.80gb")])
    assert to_ours(Declaration({"by-model": NamedLayout("by-model", parts)}))["layouts"]["by-model"][0]["models"]


def spawner(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("gpus", "lessons", "node"),
    [
        pytest.param(
            ["a100-80gb:8"],
            ["30 people, 1g.10gb, Tuesday 10-12", "4 people, 3g.40gb, Tuesday 10-12"],
            ["a100-80gb:6"],
            id="a class",
        ),
        pytest.param(["a30-24gb:150"], ["500, 1g.6gb, Mon 9-11"], ["a30-24gb:8"], id="many nodes"),
        pytest.param(
            ["a100-80gb:3", "h100-80gb:3"], ["8, 1g.10gb, Mon 9-11", "6, 3g.40gb, Mon 10-12"], [], id="two models"
        ),
    ],
)
def test_what_plan_writes_layout_check_accepts(
    tmp_path: Path, gpus: list[str], lessons: list[str], node: list[str]
) -> None:
    ours, parted = tmp_path / "ours.yaml", tmp_path / "parted.yaml"
    asked = [word for gpu in gpus for word in ("--gpu", gpu)] + [w for les in lessons for w in ("--class", les)]
    result = spawner("plan", *asked, "--layout", ours, "--mig-parted", parted, "--no-trial", "--quiet")
    assert result.exit_code == 0, result.output
    checked = spawner("layout", "check", ours, parted, *(word for n in node for word in ("--gpu", n)))
    assert checked.exit_code == 0, checked.output
    assert checked.stdout.count("can be had: planned") == 2
    imported = spawner("layout", "import", parted)
    assert yaml.safe_load(imported.stdout) == yaml.safe_load(ours.read_text("utf-8"))
    again = spawner("plan", *asked, "--today", ours, "--no-trial", "--quiet", "--json")
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [", "no YAML"),
        ("version: v1", "neither 'layouts'"),
        ("{version: v1, mig-configs: {a: 3}}", "list of parts"),
        ("{version: v1, mig-configs: {a: [{devices: some, mig-enabled: true, mig-devices: {}}]}}", "list of indices"),
    ],
)
def test_a_layout_of_today_that_is_none_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "today.yaml"
    path.write_text(text, "utf-8")
    asked = ("plan", "--gpu", "a100-80gb:1", "--class", "1, 1g.10gb, Tue 1-2", "--no-trial", "--quiet")
    result = spawner(*asked, "--today", path)
    assert result.exit_code != 0
    assert fault in " ".join(result.stderr.split())


def test_a_layout_of_today_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "today.yaml"
    path.write_text("{version: 1, layouts: {odd: [{gpus: all, mig: true, instances: {7g.79gb: 1}}]}}", "utf-8")
    asked = ("plan", "--gpu", "a100-80gb:1", "--class", "1, 1g.10gb, Tue 1-2", "--no-trial", "--quiet")
    result = spawner(*asked, "--today", path)
    assert result.exit_code == 0, result.output
    assert "calls it 7g.80gb" in result.stderr
    assert "it has no 1g.10gb" in result.stdout
