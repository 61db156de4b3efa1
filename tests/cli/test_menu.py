"""`mig-spawner menu`: a menu against GPUs, those of an allocator and those of a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types
import pytest
import yaml

from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.menu import Menu
from mig_spawner.wire.menu.check import Severity, check, offered_on
from mig_spawner.wire.menu.schema import menu_schema
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import Rig, gpu_document
from tests.cli.conftest import Type

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


def report(*models: str, **changes: Any) -> NodeReport:
    gpus = tuple(gpu_document(find_model(m).gpu(f"GPU-{i}"), **changes) for i, m in enumerate(models))
    return NodeReport(agent_version="test", boot_id="b", applied_generation=0, gpus=gpus)


def judged(
    entries: list[dict[str, Any]], *models: str, quotas: Any = None, **changes: Any
) -> list[tuple[str, str, str]]:
    menu = Menu.parse({"entries": [{"display_name": "x", "id": "x", **e} for e in entries], "quotas": quotas})
    return [(str(f.severity), f.text, f.instead) for f in check(menu, offered_on(report(*models, **changes)), NOW)]


@pytest.mark.parametrize(
    ("entry", "instead"),
    [
        ({"profile": "1g.10gb"}, None),
        ({"min_memory": 12}, None),
        ({"whole": True}, None),
        ({"none": True}, None),
        ({"profile": "1g.5gb"}, "profile: 1g.10gb"),
        ({"profile": "2g.10gb"}, "profile: 1g.10gb"),
        ({"profile": "3g.48gb"}, "profile: 3g.40gb"),
        ({"profile": "1g.24gb"}, "profile: 1g.20gb"),
        ({"profile": "1g.5gb+me"}, "profile: 1g.10gb+me"),
        ({"min_memory": 100}, "whole: true"),
    ],
)
def test_the_nearest_that_can_be_had_is_named(entry: dict[str, Any], instead: str | None) -> None:
    found = judged([entry], "a100-80gb")
    assert [(severity, said) for severity, _, said in found] == ([] if instead is None else [("error", instead)])


def test_fixed_partitions_are_all_that_can_be_had() -> None:
    fixed: dict[str, Any] = {"dynamic": False}
    assert judged([{"whole": True}], "a100-80gb", **fixed)[0][1].startswith("no GPU here can be had whole")
    assert judged([{"profile": "1g.10gb"}], "a100-80gb", **fixed) == [("error", "no GPU here offers 1g.10gb", "")]
    assert judged([{"whole": True}], "a100-80gb", dynamic=False, mig_enabled=False) == []


def test_what_can_be_had_but_not_as_meant_is_a_warning() -> None:
    found = judged(
        [{"profile": "3g.40gb", "until": "2026-02-01"}], "a100-80gb", quotas=[{"per": "person", "memory_gb": 20}]
    )
    assert [severity for severity, *_ in found] == [Severity.WARNING] * 3
    said = " / ".join(text for _, text, _ in found)
    assert "40 memory gb, more than the quota 20 memory gb per person" in said
    assert "could be had until 2026-02-01" in said
    assert "taken when nobody chose" in said


def write(folder: Path, text: str, name: str = "menu.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


async def test_against_an_allocator(rig: Rig, typed: Type, tmp_path: Path) -> None:
    await rig.node()
    good = write(tmp_path, "- {display_name: Small, profile: 1g.10gb}\n- {display_name: No GPU, none: true}\n")
    done = await typed("menu", "check", good)
    assert done.code == 0
    assert "2 entries, 0 limits. Everything on it can be had here." in done.out
    assert "not on the menu: 1g.10gb+me, 1g.20gb, 2g.20gb" in done.out
    bad = write(tmp_path, "- {display_name: Small, profile: 1g.5gb}\n", "bad.yaml")
    done = await typed("menu", "check", bad)
    assert done.code == 7
    assert "profile: 1g.10gb" in done.out
    assert "1 of 1 entries" in done.err


async def test_against_files(typed: Type, tmp_path: Path) -> None:
    good = write(tmp_path, "- {display_name: Small, profile: 1g.6gb}\n")
    inventory = write(tmp_path, report("a30").model_dump_json(), "report.json")
    assert (await typed("menu", "check", good, "--inventory", inventory)).code == 0
    other = write(tmp_path, report("h100-80gb").model_dump_json(), "other.json")
    assert (await typed("menu", "check", good, "--inventory", other)).code == 7
    nothing = write(tmp_path, "{}", "nothing.json")
    assert (await typed("menu", "check", good, "--inventory", nothing)).code == 2


async def test_a_file_that_is_no_menu_is_wrong_too(typed: Type, tmp_path: Path) -> None:
    bad = write(tmp_path, "- {display_name: Small, profil: 1g.6gb}\n")
    done = await typed("menu", "check", bad, "--syntax")
    assert done.code == 7
    assert "did you mean `profile`?" in done.err
    good = write(tmp_path, "quotas: [{per: person, slices: 1}]\n")
    assert (await typed("menu", "check", good, "--syntax")).code == 0


async def test_the_schema_is_printed(typed: Type) -> None:
    done = await typed("menu", "schema")
    assert (done.code, json.loads(done.out)) == (0, menu_schema())
    jsonschema.Draft202012Validator.check_schema(menu_schema())


def examples() -> list[str]:
    texts = [(ROOT / "hub_config" / "menu.yaml").read_text(encoding="utf-8")]
    for page in ("menu.md", "quota.md"):
        blocks = (ROOT / "docs" / page).read_text(encoding="utf-8").split("```yaml\n")[1:]
        texts += [block.partition("```")[0].replace("- ...", "- {display_name: x, none: true}") for block in blocks]
    return texts


@pytest.mark.parametrize("text", examples())
def test_the_examples_are_menus_for_schema_and_reader(text: str) -> None:
    read = yaml.safe_load(text)
    Menu.parse(read)
    jsonschema.validate(json.loads(json.dumps(read, default=str)), menu_schema())


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        [{"display_name": "x"}],
        [{"display_name": "x", "none": False}],
        [{"display_name": "x", "none": True, "whole": True}],
        [{"display_name": "x", "none": True, "profil": "y"}],
        [{"display_name": "x", "min_memory": 0}],
        [{"display_name": "x", "min_memory": 10_001}],
        {"entries": [], "quota": []},
        {"quotas": [{"per": "all", "slices": 1}]},
        {"quotas": [{"slices": 1}]},
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"[mM]enu"):
        Menu.parse(wrong)
    assert not jsonschema.Draft202012Validator(menu_schema()).is_valid(wrong)
