"""What the driver's contract runs on here, and whether those are what they say."""

from __future__ import annotations

import pytest

from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.driver.nvml import NVMLDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.testing.gpu import SimulatedNode
from tests.nvml import probe
from tests.nvml.fixture import INSTALL, Imitation, has_oldest_wheel, has_real_driver, oldest_wheel


def test_the_oldest_wheel_is_another_one_and_reads_the_same(imitation: Imitation) -> None:
    if not has_oldest_wheel():
        pytest.skip(f"the oldest wheel is not cached; once: python -m {' '.join(INSTALL)}")
    seen = []
    for wheel in (None, oldest_wheel()):
        with imitation.rig("a100-80gb", "a30-24gb", wheel=wheel) as (driver, node, worker):
            assert worker.run(probe.wheel).startswith(str(wheel)) is (wheel is not None)
            gpu = node.gpu_uuids()[0]
            driver.set_mig_mode(gpu, True)
            driver.create(gpu, 9, 4, 4)
            seen.append([document.model_dump_json() for document in worker.run(probe.observe)])
    assert seen[0] == seen[1]


def test_real_gpus_can_be_read() -> None:
    if not has_real_driver():
        pytest.skip("no NVIDIA driver on this machine: the contract runs on the simulation and on the library alone")
    with NVMLDriver() as driver:
        gpus = Observer(driver, dynamic=False).observe()
    assert all(gpu.gpu_uuid.startswith("GPU-") for gpu in gpus)


def test_library_and_simulation_report_the_same_node(imitation: Imitation) -> None:
    models = ("a30-24gb", "a100-80gb", "h100-80gb", "rtx-pro-6000")
    with imitation.rig(*models) as (driver, node, worker), FakeDriver(SimulatedNode("node-a", models)) as fake:
        for each in (driver, fake):
            for gpu in node.gpu_uuids():
                each.set_mig_mode(gpu, True)
        of_library = worker.run(probe.observe)
        simulated = Observer(fake, dynamic=True).observe()
    assert [g.model_copy(update={"profiles": ()}) for g in of_library] == [
        g.model_copy(update={"profiles": ()}) for g in simulated
    ]
    for one, other in zip(of_library, simulated, strict=True):
        assert sorted(one.profiles, key=str) == sorted(other.profiles, key=str)
