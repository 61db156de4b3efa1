"""Who else owns the GPUs of a node, and that nothing is touched while somebody does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.agent.owner import Program, owners, programs
from mig_spawner.wire.node import DesiredInstance, NodeReport

PLUGIN = "/usr/bin/nvidia-device-plugin"


@pytest.mark.parametrize(
    ("program", "dynamic", "static"),
    [
        pytest.param(Program((PLUGIN,)), "", "", id="a plugin without a strategy"),
        pytest.param(Program((PLUGIN, "--mig-strategy=none")), "", "", id="none is no strategy"),
        pytest.param(Program((PLUGIN, "--mig-strategy=mixed")), "MIG strategy mixed", "", id="by argument"),
        pytest.param(Program((PLUGIN, "--mig-strategy", "single")), "MIG strategy single", "", id="by two arguments"),
        pytest.param(
            Program((PLUGIN,), {"MIG_STRATEGY": "mixed"}), "deploy.device-plugin=false", "", id="by environment"
        ),
        pytest.param(
            Program(("gpu-kubelet-plugin",), {"FEATURE_GATES": "A=true,DynamicMIG=true"}), "DynamicMIG", "", id="DRA"
        ),
        pytest.param(Program(("gpu-kubelet-plugin", "--feature-gates=DynamicMIG=false")), "", "", id="DRA, static"),
        pytest.param(
            Program(("nvidia-mig-parted", "apply", "-f", "x")),
            "changing the layout",
            "changing the layout",
            id="mig-parted",
        ),
        pytest.param(Program(("nvidia-mig-parted", "export")), "", "", id="mig-parted that reads"),
        pytest.param(Program(("my-nvidia-device-plugin", "--mig-strategy=mixed")), "", "", id="another name"),
        pytest.param(Program(()), "", "", id="a kernel thread"),
    ],
)
def test_who_is_an_owner(program: Program, dynamic: str, static: str) -> None:
    for words, cuts in ((dynamic, True), (static, False)):
        found = owners([program, program], dynamic=cuts)
        assert len(found) == bool(words), "and it is said once"
        assert all(words in sentence for sentence in found)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, ""),
        ({"nvidia.com/mig.config.state": "success"}, ""),
        ({"nvidia.com/mig.config.state": "pending"}, "remove the label nvidia.com/mig.config"),
        ({"nvidia.com/mig.config.state": "rebooting"}, "changing the layout"),
        ({"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.deploy.device-plugin": "true"}, "mig.strategy=mixed"),
        ({"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.deploy.device-plugin": "false"}, ""),
    ],
)
def test_labels_say_it_too(labels: dict[str, str], words: str) -> None:
    found = owners([], dynamic=True, labels=labels)
    assert len(found) == bool(words)
    assert all(words in sentence for sentence in found)


def test_programs_are_read_from_proc(tmp_path: Path) -> None:
    for number, (command, environment) in enumerate(
        [(f"{PLUGIN}\0", "A=1\0MIG_STRATEGY=mixed\0"), ("bash\0-c\0nvidia-mig-parted apply\0", ""), ("", "")], 1
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cmdline").write_text(command)
        if environment:
            (folder / "environ").write_text(environment)
    (tmp_path / "4").mkdir()
    (found,) = programs(tmp_path)
    assert (found.name, found.environment["MIG_STRATEGY"]) == ("nvidia-device-plugin", "mixed")


async def test_while_another_owner_is_there_all_is_told_and_nothing_is_touched(
    allocator: Any, start_agent: Callable[..., Awaitable[Any]]
) -> None:
    there = ["mig-manager is changing the layout of this node."]
    agent = await start_agent(report_interval_s=0.2, owners=lambda: tuple(there))
    (gpu,) = agent.node.gpu_uuids()
    await allocator.want((DesiredInstance(lease_id="l1", gpu_uuid=gpu, profile_id=19, start=0, size=1),))
    await allocator.called(4)
    report: NodeReport = allocator.reports[-1]
    assert report.problem == there[0]
    assert [g.gpu_uuid for g in report.gpus] == [gpu]
    assert report.applied_generation < allocator.desired.generation
    assert not agent.node.read_gpu(gpu)[1]
    there.clear()
    report = await allocator.settled()
    assert (report.problem, len(report.gpus[0].instances)) == ("", 1)
