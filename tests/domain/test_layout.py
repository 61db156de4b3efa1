"""Layouts that admins declare: read in both dialects, written again, and what they mean for GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from mig_spawner.domain.layout import (
    Declaration,
    NamedLayout,
    Part,
    Seat,
    current,
    intend,
    read,
    to_config_map,
    to_mig_parted,
    to_ours,
)
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import find_model

DATA = Path(__file__).parent / "layouts"
A100, A30 = "0x20B210DE", "0x20B710DE"


def load(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def parse(text: str) -> tuple[Declaration, list[str]]:
    parsed = read(load(text), load)
    return parsed.declaration, [str(f) for f in parsed.findings]


def seats(*models: str) -> list[Seat]:
    ids = {"a100-80gb": A100, "a30-24gb": A30}
    return [Seat(n, find_model(m).gpu(f"GPU-{n}"), ids.get(m)) for n, m in enumerate(models)]


def part(text: str) -> str:
    """A mig-parted file with one part."""
    return "version: v1\nmig-configs:\n  mine:\n    - " + text.strip().replace("\n", "\n      ")


# -- files as people published them ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "names", "words"),
    [
        ("default.yaml", ["all-disabled", "all-enabled", "all-1g.10gb", "all-balanced", "video"], []),
        ("configmap.yaml", ["all-disabled", "five-1g-one-2g"], []),
        ("helm-values.yaml", ["all-disabled", "custom-mig"], []),
        ("null-layout.yaml", ["all-disabled", "all-1g.24gb"], ["all-disabled: It says nothing"]),
        ("scalar-devices.yaml", [], ["not the bare number 7: write [7]"]),
        ("fragment.yaml", [], ["looks like a part of a mig-parted file"]),
    ],
)
def test_published_files_are_read_or_refused_with_the_fault(file: str, names: list[str], words: list[str]) -> None:
    declaration, said = parse((DATA / file).read_text())
    assert list(declaration.layouts) == names
    assert len(said) == len(words)
    assert all(word in sentence for word, sentence in zip(words, said, strict=True))


@pytest.mark.parametrize("file", ["default.yaml", "configmap.yaml", "helm-values.yaml", "null-layout.yaml"])
def test_import_export_import_is_the_identity(file: str) -> None:
    declaration, _ = parse((DATA / file).read_text())
    exported, lost = to_mig_parted(declaration)
    assert lost == []
    assert parse(yaml.safe_dump(exported))[0] == declaration
    assert parse(yaml.safe_dump(to_ours(declaration)))[0] == declaration
    wrapped = to_config_map("mine", yaml.safe_dump(exported))
    assert parse(yaml.safe_dump(wrapped))[0] == declaration


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "holds no mapping"),
        ("kind: Secret\ndata: {}", "only a ConfigMap"),
        ("kind: ConfigMap\ndata: {a: b}", "no text under the key 'config.yaml'"),
        ("kind: ConfigMap\ndata: {config.yaml: '{'}", "under config.yaml is no YAML"),
        ("migManager: {config: {name: x}}", "no layout in these values"),
        ("version: v2\nmig-configs: {}", "mig-parted knows 'v1'"),
        ("version: v1\nmig-configs: []", "no layouts by name"),
        ("version: v1\nmig-configs: {a: []}\nextra: 1", "'extra' is no key here"),
        ("version: v1\nmig-configs: {a: 3}", "a: It is a list of parts"),
        ("version: 7\nlayouts: {a: []}", "this program knows 1"),
        ("hello: 1", "neither 'layouts'"),
        (part("devices: all"), "'mig-enabled' is missing"),
        (part("devices: all\nmig-enabled: yes please"), "is true or false, not 'yes please'"),
        (part("devices: all\nmig-enabled: true"), "must say what to make"),
        (part("devices: all\nmig-enabled: false\nmig-devices: {1g.5gb: 1}"), "there can be no 'mig-devices'"),
        (part("devices: some\nmig-enabled: false"), "'all' or a list of indices"),
        (part("devices: [0, 0]\nmig-enabled: false"), "names a GPU twice"),
        (part("devices: [64]\nmig-enabled: false"), "no index of a GPU"),
        (part("devices: [-1]\nmig-enabled: false"), "no index of a GPU"),
        (part("devices: all\nmig-enabled: true\nmig-devices: {1g.5gb: 0}"), "a number from 1 to 64"),
        (part("devices: all\nmig-enabled: true\nmig-devices: {1g.5gb: true}"), "a number from 1 to 64"),
        (part("devices: all\nmig-enabled: true\nmig-devices: {1c.3g.20gb: 1}"), "Ask for the whole GPU instance"),
        (part("devices: all\nmig-enabled: false\ndevice-filter: A100"), "no PCI device id"),
        (part("devices: all\nmig-enabled: false\nmig_devices: {}"), "'mig_devices' is no key here"),
        ("layouts: {a: [{gpus: all, mig: true, instances: [1g.5gb]}]}", "such as 3g.40gb@4"),
        ("layouts: {a: []}\nnodes: {n: b}", "nodes, n: There is no layout 'b'"),
        ("layouts: {a: []}\npools: {p: {nodes: [], layout: a}}", "pools, p: 'nodes' is a list"),
        ("layouts: {a: []}\npools: {p: {nodes: [x], layout: b}}", "pools, p: There is no layout 'b'"),
        ("layouts: {a: []}\npools: {p: 3}", "pools, p: It is a number"),
    ],
)
def test_a_fault_is_named_in_a_sentence(text: str, words: str) -> None:
    _, said = parse(text)
    assert len(said) == 1
    assert words in said[0]
    assert said[0].endswith(".")


def test_one_faulty_layout_does_not_hide_the_others() -> None:
    declaration, said = parse(
        "version: v1\nmig-configs:\n  bad: [{devices: 7, mig-enabled: false}]\n  good: [{devices: all, mig-enabled: false}]"
    )
    assert list(declaration.layouts) == ["good"]
    assert said == ["bad, part 1: 'devices' is 'all' or a list of indices, not the bare number 7: write [7]."]


def test_a_profile_that_nobody_knows_yet_is_kept() -> None:
    text = part("devices: all\nmig-enabled: true\nmig-devices: {5g.77gb+zz: 1, 5g.77gb+zz+yy: 1}")
    declaration, said = parse(text)
    assert declaration.layouts["mine"].parts[0].counts == {"5g.77gb+zz": 1, "5g.77gb+zz+yy": 1}
    (doubt,) = said
    assert "'5g.77gb+zz+yy' is no profile that this program knows" in doubt
    assert parse(yaml.safe_dump(to_mig_parted(declaration)[0]))[0] == declaration


# -- ours --------------------------------------------------------------------------------------------------------------

OURS = """
version: 1
layouts:
  teaching:
    - gpus: [0]
      mig: true
      instances: [3g.40gb@4, 1g.10gb@0, 1g.10gb@1]
    - gpus: [1]
      models: ["0x20B710DE"]
      mig: true
      instances: {1g.6gb: 2, 2g.12gb: 1}
  plain:
    - {gpus: all, mig: false}
nodes: {gpu-a: teaching}
pools:
  small: {nodes: ["gpu-b-*", gpu-c], layout: plain}
"""


def test_nodes_find_their_layout_by_name_and_by_pool() -> None:
    declaration, said = parse(OURS)
    assert said == []
    names = {n: declaration.layout_of(n) for n in ("gpu-a", "gpu-b-7", "gpu-c", "gpu-d")}
    assert [n and n.name for n in names.values()] == ["teaching", "plain", "plain", None]
    assert parse(yaml.safe_dump(to_ours(declaration)))[0] == declaration


def test_what_mig_parted_cannot_say_is_told() -> None:
    declaration, _ = parse(OURS)
    exported, lost = to_mig_parted(declaration)
    assert [str(f) for f in lost] == [
        "teaching, part 1: mig-parted chooses the places itself; those declared here are lost.",
        "nodes and pools: mig-parted knows no nodes: label each with nvidia.com/mig.config=<layout>.",
    ]
    assert exported["mig-configs"]["teaching"][0]["mig-devices"] == {"3g.40gb": 1, "1g.10gb": 2}


def test_what_is_there_can_be_written_down() -> None:
    layout = current([(True, [("1g.10gb", 0), ("3g.40gb", 4)]), (False, []), (True, [("3g.40gb", 4), ("1g.10gb", 0)])])
    assert [p.gpus for p in layout.parts] == [(0, 2), (1,)]
    exported, _ = to_mig_parted(Declaration({layout.name: layout}))
    assert exported["mig-configs"]["current"][0]["mig-devices"] == {"1g.10gb": 1, "3g.40gb": 1}


# -- what it means for GPUs --------------------------------------------------------------------------------------------


def meant(declaration: Declaration, name: str, *models: str) -> tuple[dict[str, Any], list[str]]:
    intents, findings = intend(declaration.layouts[name], seats(*models))
    return {i.gpu_uuid: [(str(p.name), s) for p, s in i.places] if i.enabled else None for i in intents}, [
        str(f) for f in findings
    ]


def test_declared_places_are_kept_and_others_found() -> None:
    declaration, _ = parse(OURS)
    intents, said = meant(declaration, "teaching", "a100-80gb", "a30-24gb")
    assert said == []
    assert intents["GPU-0"] == [("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4)]
    assert sorted(n for n, _ in intents["GPU-1"]) == ["1g.6gb", "1g.6gb", "2g.12gb"]
    assert meant(declaration, "plain", "a100-80gb")[0] == {"GPU-0": None}


@pytest.mark.parametrize(
    ("instances", "models", "words"),
    [
        ("{2g.12gb+me: 2}", ["a30-24gb"], "2 x 2g.12gb+me do not fit on NVIDIA A30: it holds 1."),
        ("{1g.10gb: 4, 4g.40gb: 1}", ["a100-80gb"], "do not fit together"),
        ("{7g.79gb: 1}", ["a100-80gb"], "calls it 7g.80gb, not 7g.79gb: write 7g.80gb."),
        ("{1g.11gb: 1}", ["a100-80gb"], "calls it 1g.10gb, not 1g.11gb"),
        ("{1g.5gb: 1}", ["a100-80gb"], "has no 1g.5gb. It has 1g.10gb"),
        ("[2g.20gb@1]", ["a100-80gb"], "2g.20gb cannot begin at 1"),
        ("[2g.20gb@0, 1g.10gb@1]", ["a100-80gb"], "1g.10gb at 1 is in the way"),
    ],
)
def test_what_cannot_be_had_is_told_for_the_gpu(instances: str, models: list[str], words: str) -> None:
    declaration, said = parse(f"layouts: {{a: [{{gpus: all, mig: true, instances: {instances}}}]}}")
    assert said == []
    intents, said = meant(declaration, "a", *models)
    assert intents == {}
    assert words in said[0]


def test_of_two_names_that_are_near_none_is_proposed() -> None:
    seat = seats("a100-80gb")[0]
    large = next(p for p in seat.gpu.profiles if str(p.name) == "7g.80gb")
    twin = replace(large, name=ProfileName(7, 78), profile_id=98)
    gpu = replace(seat.gpu, profiles=(*seat.gpu.profiles, twin))
    declaration, _ = parse("layouts: {a: [{gpus: all, mig: true, instances: {7g.79gb: 1}}]}")
    intents, (finding,) = intend(declaration.layouts["a"], [replace(seat, gpu=gpu)])
    assert intents == []
    assert "has no 7g.79gb. It has " in str(finding)


def test_gpus_that_are_not_there_and_models_that_are_not_meant() -> None:
    text = "layouts: {a: [{gpus: [0, 1], mig: false}, {gpus: [0], mig: false}], b: [{gpus: all, models: '0x233010DE', mig: false}]}"
    declaration, _ = parse(text)
    _, said = meant(declaration, "a", "a100-80gb")
    assert said == ["a, part 1: There is no GPU 1 here; this node has 1.", "a, part 2: Part 1 speaks of GPU 0 already."]
    intents, said = meant(declaration, "b", "a100-80gb")
    assert intents == {}
    assert "their PCI device ids are 0x20B210DE" in said[0]


def test_every_combination_of_counts_that_a_gpu_can_hold_is_found() -> None:
    """The order in which they are named does not decide whether they fit."""
    for counts in ("{1g.10gb: 3, 3g.40gb: 1}", "{3g.40gb: 1, 1g.10gb: 3}", "{1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}"):
        declaration, _ = parse(f"layouts: {{a: [{{gpus: all, mig: true, instances: {counts}}}]}}")
        intents, said = meant(declaration, "a", "a100-80gb")
        assert said == []
        taken = 0
        for profile, start in intend(declaration.layouts["a"], seats("a100-80gb"))[0][0].places:
            mask = ((1 << profile.size) - 1) << start
            assert not taken & mask
            taken |= mask
        assert intents


def test_a_part_speaks_of_what_it_names() -> None:
    assert Part(None, (), False, {}).means(3, None)
    assert not Part(None, (A30,), False, {}).means(3, None)
    assert Part((3,), (A30.lower(),), False, {}).means(3, A30)
    assert NamedLayout("x", ()).parts == ()
