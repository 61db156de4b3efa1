"""The simulated `nvidia-smi`: the format of the real one, and never without saying what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.testing.gpu.smi import BANNER, NOTHING, list_devices, main, table


@pytest.fixture
def node(state_file: Path) -> SimulatedNode:
    """Two A100: one cut into 3g, 1g, 1g; the other uncut."""
    node = SimulatedNode("node-a", ["a100-80gb", "a100-80gb"], state_file=state_file)
    node.cut(node.gpu_uuids()[0], [ProfileName(3, 40), ProfileName(1, 10), ProfileName(1, 10)])
    return node


def uuids(node: SimulatedNode) -> list[str]:
    return [str(i.mig_uuid) for i in node.instances(node.gpu_uuids()[0])]


def test_a_slice_is_listed_alone_below_its_gpu(node: SimulatedNode) -> None:
    leased = uuids(node)[1]
    assert list_devices([node.snapshot()], leased) == [
        "mig-spawner demo: simulated GPUs, no real hardware",
        f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {node.gpu_uuids()[0]})",
        f"  MIG 1g.10gb     Device  0: (UUID: {leased})",
    ]


def test_a_whole_gpu_is_listed_without_slices(node: SimulatedNode) -> None:
    uncut = node.gpu_uuids()[1]
    assert list_devices([node.snapshot()], uncut) == [BANNER, f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {uncut})"]


def test_several_are_numbered_per_gpu(node: SimulatedNode) -> None:
    lines = list_devices([node.snapshot()], ",".join([*uuids(node), node.gpu_uuids()[1]]))
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "GPU 0",
        "MIG 1g.10gb     Device  0",
        "MIG 1g.10gb     Device  1",
        "MIG 3g.40gb     Device  2",
        "GPU 1",
    ]
    assert list_devices([node.snapshot()], "all") == lines


@pytest.mark.parametrize(
    "visible", [None, "", "void", "none", "MIG-00000000-0000-0000-0000-000000000000", "0", ","], ids=repr
)
def test_without_a_lease_there_is_nothing(node: SimulatedNode, visible: str | None) -> None:
    assert list_devices([node.snapshot()], visible) == [BANNER, NOTHING]
    assert table([node.snapshot()], visible) == [BANNER, NOTHING]


def test_a_lost_gpu_is_not_seen(node: SimulatedNode) -> None:
    node.lose(node.gpu_uuids()[0])
    assert list_devices([node.snapshot()], "all") == [
        BANNER,
        f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {node.gpu_uuids()[1]})",
    ]


def test_the_table_says_sizes_and_processes(node: SimulatedNode) -> None:
    leased = uuids(node)[2]
    node.set_processes(leased, 1)
    lines = table([node.snapshot()], leased)
    assert lines[0] == BANNER
    assert lines[1].split() == ["device", "memory", "SMs", "processes", "UUID"]
    assert "MIG 3g.40gb" in lines[2]
    assert "40192 MiB" in lines[2]
    assert lines[2].split()[-2:] == ["1", leased]
    assert len(lines) == 3


def test_devices_of_several_nodes_are_found(
    node: SimulatedNode, state_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = state_file.with_name("node-b.json")
    second = SimulatedNode("node-b", ["a30-24gb"], state_file=other)
    (made,) = second.cut(second.gpu_uuids()[0], [ProfileName(2, 12)])
    environment = {
        "MIG_DEMO_BOARD_FILE": os.pathsep.join([str(state_file), str(other)]),
        "NVIDIA_VISIBLE_DEVICES": str(made.mig_uuid),
    }
    assert main(["-L"], environment) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        BANNER,
        f"GPU 0: NVIDIA A30 (UUID: {second.gpu_uuids()[0]})",
        f"  MIG 2g.12gb     Device  0: (UUID: {made.mig_uuid})",
    ]


@pytest.mark.parametrize(
    ("arguments", "files", "code", "error"),
    [
        pytest.param(["-L"], "", 6, "", id="no files: no devices"),
        pytest.param([], "", 6, "", id="no files: no table"),
        pytest.param(["-L"], "/nowhere/boards.json", 1, "cannot be read", id="missing file"),
        pytest.param(["--query-gpu=name"], "", 2, "'--query-gpu=name'", id="not simulated"),
    ],
)
def test_what_it_cannot_do_it_says(
    arguments: list[str], files: str, code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, {"MIG_DEMO_BOARD_FILE": files, "NVIDIA_VISIBLE_DEVICES": "all"}) == code
    captured = capsys.readouterr()
    assert captured.out.startswith(BANNER)
    assert error in captured.err


def test_it_runs_as_a_module(node: SimulatedNode, state_file: Path) -> None:
    leased = uuids(node)[0]
    environment = {**os.environ, "MIG_DEMO_BOARD_FILE": str(state_file), "NVIDIA_VISIBLE_DEVICES": leased}
    result = subprocess.run(
        [sys.executable, "-m", "mig_spawner.testing.gpu.smi", "-L"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == list_devices([node.snapshot()], leased)
    assert result.stderr == ""
