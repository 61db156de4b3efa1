"""What devices use: read, remembered, and served."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mig_spawner.agent.board import Board, Sight
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.metrics import STUCK_AFTER_S, MetricsServer
from mig_spawner.agent.usage import Meter
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.wire.node import UsageDocument

ONE = ProfileName(1, 10)


class Bench:
    def __init__(self, *models: str) -> None:
        self.node = SimulatedNode("node-a", models)
        self.driver = FakeDriver(self.node)
        self.observer = Observer(self.driver, dynamic=True)
        self.meter = Meter(self.driver)

    def look(self) -> Sight:
        gpus = self.observer.observe()
        return Sight(gpus, self.meter.read(gpus))

    def usage(self, device: str) -> UsageDocument:
        return next(u for u in self.look().usage if u.device_uuid == device)


class Page:
    """What an agent serves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.board = Board(clock=lambda: self.now)
        self.server = MetricsServer("127.0.0.1", 0, "node-a", self.board)

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        connection.request(method, path)
        response = connection.getresponse()
        answer = response.status, response.read().decode()
        connection.close()
        return answer

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """By the values of the labels but the node, in the order of their names."""
        status, text = self.get("/metrics")
        assert status == 200
        return {
            tuple(v for k, v in sorted(sample.labels.items()) if k != "node"): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.server.close()


def test_the_most_memory_is_remembered_until_the_device_goes() -> None:
    bench = Bench("a100-80gb")
    (gpu,) = bench.node.gpu_uuids()
    (made,) = bench.node.cut(gpu, [ONE])
    device = str(made.mig_uuid)
    for used, peak in ((5000, 5000), (200, 5000), (7000, 7000)):
        bench.node.set_usage(device, memory_mib=used)
        seen = bench.usage(device)
        assert (seen.memory_used_mib, seen.memory_peak_mib, seen.memory_total_mib) == (used, peak, 9728)
    bench.driver.destroy(bench.driver.list_instances(gpu)[0])
    bench.look()
    again = bench.driver.create(gpu, made.profile.profile_id, made.placement.start, 1)
    assert again.mig_uuid == device, "the same name, and another device"
    assert bench.usage(device).memory_peak_mib == bench.usage(device).memory_used_mib


def test_what_is_not_measured_is_absent_and_not_zero(page: Page) -> None:
    bench = Bench("a100-80gb", "h100-80gb", "a100-80gb")
    ampere, hopper, lost = bench.node.gpu_uuids()
    devices = [str(bench.node.cut(gpu, [ONE])[0].mig_uuid) for gpu in (ampere, hopper)]
    bench.look()
    bench.node.lose(lost)
    bench.node.set_usage(devices[1], memory_mib=2048, sm=0.5, tensor=0.25)
    bench.node.set_processes(devices[0], None)
    page.board.saw(bench.look())
    numbers = {u.gpu_uuid: str(u.gpu_instance_id) for u in page.board.sight.usage}
    keys = [(numbers[ampere], ampere), (numbers[hopper], hopper)]
    assert page.samples("mig_device_sm_active_ratio") == {keys[1]: 0.5}
    assert page.samples("mig_device_dram_active_ratio") == {keys[1]: 0.0}, "measured, and nothing"
    assert page.samples("mig_device_process_count") == {keys[1]: 0}
    assert page.samples("mig_device_memory_used_bytes")[keys[1]] == 2048 * 1024 * 1024
    assert set(page.samples("mig_device_memory_used_bytes")) == set(keys), "none of a lost GPU"
    assert page.samples("mig_gpu_health_state")[lost, "bad"] == 1
    assert page.samples("mig_gpu_health_state")[lost, "ok"] == 0
    assert (*keys[0][:1], "1g.10gb", ampere, devices[0]) in page.samples("mig_device_info")


def test_an_uncut_gpu_has_its_own_series(page: Page) -> None:
    bench = Bench("h100-80gb")
    (gpu,) = bench.node.gpu_uuids()
    bench.node.set_usage(gpu, memory_mib=1024)
    page.board.saw(bench.look())
    assert page.samples("mig_device_memory_used_bytes") == {("", gpu): 1024**3}


def test_without_a_driver_it_lives_and_says_so(page: Page) -> None:
    page.board.saw(Sight(problem="There is no NVIDIA driver here.", driver=False))
    assert page.get("/healthz") == (200, "There is no NVIDIA driver here.\n")
    assert page.samples("mig_agent_driver_up") == {(): 0}
    assert page.samples("mig_agent_answer_age_seconds") == {}
    page.board.answered()
    page.now += 3
    assert page.samples("mig_agent_answer_age_seconds") == {(): 3}


def test_an_agent_that_hangs_is_not_well(page: Page) -> None:
    page.now += STUCK_AFTER_S + 1
    assert page.get("/healthz")[0] == 503
    page.board.saw(Sight())
    assert page.get("/healthz") == (200, "ok\n")


def test_nothing_else_is_served(page: Page) -> None:
    assert page.get("/")[0] == 404
    assert page.get("/metrics/../etc")[0] == 404
    assert page.get("/metrics", "POST")[0] == 405
