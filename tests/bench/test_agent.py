"""What an agent of 16 GPUs with 7 MIG devices each costs: reading all of it, and planning. Printed, never asserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.plan import plan
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.wire.node import DesiredInstance, DesiredNode, GPUDocument, NodeReport
from tests.nvml import probe
from tests.nvml.fixture import Imitation, imitation
from tests.nvml.node import ImitatedNode

__all__ = ["imitation"]

Benchmark = Any  # pytest-benchmark has no types
GPUS, DEVICES, PROFILE = 16, 7, 19
ROUNDS = 5


def cut_node() -> SimulatedNode:
    node = SimulatedNode("node-a", ["h100-80gb"] * GPUS)
    for gpu in node.gpu_uuids():
        node.cut(gpu, [ProfileName(1, 10)] * DEVICES)
    return node


def wanted(gpus: tuple[GPUDocument, ...]) -> DesiredNode:
    """A device on every place of every GPU."""
    return DesiredNode(
        generation=1,
        instances=tuple(
            DesiredInstance(
                lease_id=f"{gpu.gpu_uuid}-{start}", gpu_uuid=gpu.gpu_uuid, profile_id=PROFILE, start=start, size=1
            )
            for gpu in gpus
            for start in range(DEVICES)
        ),
    )


@pytest.mark.benchmark(group="agent: read 16 GPUs x 7")
def test_reading_through_the_library(benchmark: Benchmark, imitation: Imitation, tmp_path: Path) -> None:
    node = ImitatedNode(tmp_path, "node-a", ["h100-80gb"] * GPUS)
    with imitation.driver(node) as (driver, worker):
        for gpu in node.gpu_uuids():
            driver.set_mig_mode(gpu, True)
            for start in range(DEVICES):
                driver.create(gpu, PROFILE, start, 1)
        gpus = benchmark.pedantic(worker.run, args=(probe.observe,), rounds=ROUNDS)
        with node.calls() as calls:
            worker.run(probe.observe)
    assert sum(len(gpu.instances) for gpu in gpus) == GPUS * DEVICES
    report = NodeReport(agent_version="0", boot_id="b", gpus=gpus).model_dump_json()
    print(f"\n{len(calls)} calls of NVML, {len(report) // 1024} KiB of report")


@pytest.mark.benchmark(group="agent: read 16 GPUs x 7")
def test_reading_the_simulation(benchmark: Benchmark) -> None:
    with FakeDriver(cut_node()) as driver:
        gpus = benchmark.pedantic(Observer(driver, dynamic=True).observe, rounds=ROUNDS)
    assert sum(len(gpu.instances) for gpu in gpus) == GPUS * DEVICES


@pytest.mark.benchmark(group="agent: plan 16 GPUs x 7")
@pytest.mark.parametrize("cut", [True, False], ids=["nothing to do", "everything to do"])
def test_planning(benchmark: Benchmark, cut: bool) -> None:
    node = cut_node() if cut else SimulatedNode("node-a", ["h100-80gb"] * GPUS)
    with FakeDriver(node) as driver:
        gpus = Observer(driver, dynamic=True).observe()
    made = benchmark.pedantic(plan, args=(gpus, wanted(gpus)), rounds=ROUNDS, iterations=10)
    assert len(made.steps) == (0 if cut else GPUS * (1 + DEVICES))
    assert not made.failures
