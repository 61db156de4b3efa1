"""The C library as an unmodified `pynvml` sees it: profiles, instances, sessions and the age of the driver."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.errors import DriverError
from mig_spawner.testing.gpu import SimulatedNode, Verb
from tests.nvml import probe
from tests.nvml.conftest import Bench, MakeBench

GPU = ("gpu", 0)
INFO = "nvmlDeviceGetGpuInstanceProfileInfo"
COMPUTE_INFO = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
INVALID, NOT_SUPPORTED, NOT_FOUND, TOO_SMALL, NO_FUNCTION, LOST, IN_USE, NO_ROOM, WRONG_VERSION = (
    *(2, 3, 6, 7, 13, 15, 19, 23, 25),
)
ONE, ONE_DOUBLE, TWO, THREE, SEVEN = 19, 15, 14, 9, 0


def device(bench: Bench, profile_id: int, start: int, size: int) -> int:
    """A GPU instance with the compute instance that fills it; its id."""
    gpu = bench.node.gpu_uuids()[0]
    return bench.driver.create(gpu, profile_id, start, size).gpu_instance_id


# -- profiles ----------------------------------------------------------------------------------------------------------


def test_a_constant_asks_and_an_id_creates(bench: Bench) -> None:
    assert bench.ask(INFO, GPU, 9)["id"] == ONE_DOUBLE
    assert bench.ask(INFO + "ById", GPU, 9)["name"] == "MIG 3g.40gb"
    assert bench.code(INFO, GPU, ONE) == INVALID


def test_constants_have_holes_and_an_end(bench: Bench) -> None:
    answers = []
    for constant in range(30):
        try:
            answers.append(int(bench.ask(INFO, GPU, constant)["id"]) * 0)
        except probe.Code as code:
            answers.append(code.value)
    assert answers[:18] == [0, 0, 0, 0, 0, NOT_SUPPORTED, NOT_SUPPORTED, 0, NOT_SUPPORTED, 0] + [NOT_SUPPORTED] * 8
    assert set(answers[18:]) == {INVALID}


def test_each_version_of_the_profile_info_is_filled(bench: Bench) -> None:
    first, second = bench.ask(INFO, GPU, 2, version=1), bench.ask(INFO, GPU, 2, version=2)
    assert "name" not in first
    assert second["name"] == "MIG 3g.40gb"
    assert first == {name: second[name] for name in first}
    assert (first["memorySizeMB"], first["multiprocessorCount"], first["copyEngineCount"]) == (40192, 42, 3)
    assert bench.run(probe.profile_info, 0, 2, 3) == (0, THREE, "MIG 3g.40gb")


def test_an_unknown_version_is_refused(bench: Bench) -> None:
    assert bench.run(probe.profile_info, 0, 2, 4)[0] == WRONG_VERSION
    assert bench.code("nvmlDeviceGetMemoryInfo", GPU, version=7) == WRONG_VERSION


def test_placements_are_counted_first_and_listed_then(bench: Bench) -> None:
    assert bench.run(probe.placements, 0, THREE) == [(0, 4), (4, 4)]
    assert bench.run(probe.placements, 0, ONE_DOUBLE) == [(0, 2), (2, 2), (4, 2), (6, 2)]
    with pytest.raises(probe.Code) as caught:
        bench.run(probe.placements, 0, ONE, room=3)
    assert caught.value.value == TOO_SMALL


def test_the_capacity_that_remains(bench: Bench) -> None:
    ask = "nvmlDeviceGetGpuInstanceRemainingCapacity"
    assert [bench.ask(ask, GPU, profile) for profile in (ONE, 20, ONE_DOUBLE, THREE, SEVEN)] == [7, 1, 4, 2, 1]
    for start in (0, 1, 5):
        bench.run(probe.create, 0, ONE, start, 1)
    assert [bench.ask(ask, GPU, profile) for profile in (ONE, TWO, THREE, SEVEN)] == [4, 1, 0, 0]


# -- instances ---------------------------------------------------------------------------------------------------------


def test_what_is_taken_and_what_does_not_exist_are_two_errors(bench: Bench) -> None:
    bench.run(probe.create, 0, THREE, 4, 4)
    codes = []
    for wanted in ((THREE, 4, 4), (SEVEN, 0, 8), (TWO, 4, 2), (THREE, 2, 4), (THREE, 0, 3), (4711, 0, 1)):
        with pytest.raises(probe.Code) as caught:
            bench.run(probe.create, 0, *wanted)
        codes.append(caught.value.value)
    assert codes == [NO_ROOM, NO_ROOM, NO_ROOM, INVALID, INVALID, NOT_SUPPORTED]


def test_engines_run_out_too(bench: Bench) -> None:
    bench.run(probe.create, 0, 20, 0, 1)
    with pytest.raises(probe.Code) as caught:
        bench.run(probe.create, 0, 20, 1, 1)
    assert caught.value.value == NO_ROOM


def test_ids_of_gpu_instances_follow_the_order_of_creation(bench: Bench) -> None:
    assert bench.run(probe.create, 0, THREE, 4, 4) == 1
    assert bench.run(probe.create, 0, THREE, 0, 4) == 2
    assert bench.run(probe.instance_ids, 0, THREE) == [2, 1]


def test_an_id_is_given_again(bench: Bench) -> None:
    first = bench.run(probe.create, 0, ONE, 6, 1)
    bench.ask("nvmlGpuInstanceDestroy", ("instance", 0, first))
    assert bench.code("nvmlDeviceGetGpuInstanceById", GPU, first) == NOT_FOUND
    assert bench.run(probe.create, 0, ONE, 0, 1) == first


def test_without_a_placement_the_library_chooses(bench: Bench) -> None:
    bench.ask("nvmlDeviceCreateGpuInstance", GPU, TWO)
    (made,) = bench.run(probe.instance_ids, 0, TWO)
    assert bench.ask("nvmlGpuInstanceGetInfo", ("instance", 0, made))["placement"] == {"start": 0, "size": 2}


def test_instances_go_in_order(bench: Bench) -> None:
    made = device(bench, THREE, 0, 4)
    bench.node.set_processes(bench.ask("nvmlDeviceGetUUID", ("mig", 0, 0)), 1)
    assert bench.code("nvmlGpuInstanceDestroy", ("instance", 0, made)) == IN_USE
    assert bench.code("nvmlComputeInstanceDestroy", ("compute", 0, made, 0)) == IN_USE
    bench.node.set_processes(bench.ask("nvmlDeviceGetUUID", ("mig", 0, 0)), 0)
    bench.ask("nvmlComputeInstanceDestroy", ("compute", 0, made, 0))
    bench.ask("nvmlGpuInstanceDestroy", ("instance", 0, made))
    assert bench.run(probe.instance_ids, 0, THREE) == []


def compute_profiles(bench: Bench, instance: int) -> dict[int, tuple[int, int, int]]:
    """By constant: id, compute slices, how many."""
    found = {}
    for constant in range(9):
        with contextlib.suppress(probe.Code):  # a constant that it does not have
            info = bench.ask(COMPUTE_INFO, ("instance", 0, instance), constant, 0)
            found[constant] = (info["id"], info["sliceCount"], info["instanceCount"])
    assert bench.code(COMPUTE_INFO, ("instance", 0, instance), 9, 0) == INVALID
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param((ONE, 0, 1), {0: (0, 1, 1)}, id="1g"),
        pytest.param((ONE_DOUBLE, 0, 2), {7: (7, 1, 1)}, id="1g with double memory"),
        pytest.param((THREE, 0, 4), {0: (0, 1, 3), 1: (1, 2, 1), 2: (2, 3, 1)}, id="3g"),
        pytest.param(
            (SEVEN, 0, 8),
            {0: (0, 1, 7), 1: (1, 2, 3), 2: (2, 3, 2), 3: (3, 4, 1), 4: (4, 7, 1), 6: (6, 6, 1), 8: (8, 7, 1)},
            id="7g",
        ),
    ],
)
def test_profiles_of_compute_instances(
    bench: Bench, wanted: tuple[int, int, int], expected: dict[int, tuple[int, int, int]]
) -> None:
    assert compute_profiles(bench, bench.run(probe.create, 0, *wanted)) == expected


def test_a_gpu_instance_can_be_cut_further(bench: Bench) -> None:
    made = bench.run(probe.create, 0, THREE, 0, 4)
    where = ("instance", 0, made)
    assert bench.ask(COMPUTE_INFO, where, 0, 0)["name"] == "MIG 1c.3g.40gb"
    for _ in range(3):
        bench.ask("nvmlGpuInstanceCreateComputeInstance", where, 0)
    assert bench.code("nvmlGpuInstanceCreateComputeInstance", where, 0) == NO_ROOM
    assert bench.ask("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", where, 0) == 0
    uuids = {bench.ask("nvmlDeviceGetUUID", ("mig", 0, index)) for index in range(3)}
    assert len(uuids) == 3


# -- session and age ---------------------------------------------------------------------------------------------------


def test_sessions_are_counted(bench: Bench) -> None:
    bench.run(probe.plain, "nvmlInit")
    bench.driver.close()
    assert bench.node.in_session()
    assert bench.run(probe.plain, "nvmlDeviceGetCount") == 1
    bench.run(probe.plain, "nvmlShutdown")
    assert not bench.node.in_session()
    for function in ("nvmlDeviceGetCount", "nvmlShutdown"):
        with pytest.raises(probe.Code) as caught:
            bench.run(probe.plain, function)
        assert caught.value.value == 1


@pytest.mark.parametrize(
    ("generation", "missing", "there"),
    [
        (470, ["V", "ById", "placement", "processes", "memory"], []),
        (525, ["V", "ById"], ["placement", "processes", "memory"]),
        (535, ["ById"], ["V", "placement", "processes", "memory"]),
        (580, [], ["V", "ById", "placement", "processes", "memory"]),
    ],
)
def test_an_old_driver_lacks_functions(
    make_bench: MakeBench, generation: int, missing: list[str], there: list[str]
) -> None:
    bench = make_bench("a100", generation=generation)
    bench.ready()
    asked: dict[str, Callable[[], Any]] = {
        "V": lambda: bench.ask(INFO, GPU, 0),
        "ById": lambda: bench.ask(INFO + "ById", GPU, ONE),
        "placement": lambda: bench.run(probe.create, 0, ONE, 0, 1),
        "processes": lambda: bench.ask("nvmlDeviceGetComputeRunningProcesses_v3", GPU),
        "memory": lambda: bench.ask("nvmlDeviceGetMemoryInfo", GPU, version=0x02000028),
    }
    for name in there:
        asked[name]()
    for name in missing:
        with pytest.raises(probe.Code) as caught:
            asked[name]()
        assert caught.value.value == NO_FUNCTION
    assert bench.ask(INFO, GPU, 0, version=1)["id"] == ONE


def test_a_call_can_be_slow_and_can_be_told_to_fail(bench: Bench) -> None:
    bench.node.delay(Verb.READ_GPU, 0.2)
    before = time.monotonic()
    bench.ask("nvmlDeviceGetMemoryInfo", GPU)
    assert time.monotonic() - before >= 0.2
    bench.node.delay(Verb.READ_GPU, 0)
    bench.node.fail("nvmlDeviceGetMemoryInfo", 4, times=2)
    assert [bench.code("nvmlDeviceGetMemoryInfo", GPU) for _ in range(2)] == [4, 4]
    bench.ask("nvmlDeviceGetMemoryInfo", GPU)


def test_calls_are_logged_on_request(bench: Bench) -> None:
    with bench.node.calls() as calls:
        bench.ask("nvmlDeviceGetName", GPU)
    assert calls == ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName"]


# -- agreement with the simulation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["a30-24gb", "a100-80gb", "rtx-pro-6000"])
def test_library_and_simulation_answer_alike(make_bench: MakeBench, model: str) -> None:
    """Create and destroy in every place in a long, mixed order: the same succeeds, the same fails, with the same ids."""
    bench = make_bench(model)
    gpu = bench.ready()
    with FakeDriver(SimulatedNode("node-a", [model])) as fake:
        fake.set_mig_mode(gpu, True)
        places = [(p.profile_id, start, p.size) for p in fake.list_profiles(gpu) for start in p.starts]
        for step in range(80):
            outcomes = []
            for driver in (bench.driver, fake):
                held = sorted(driver.list_instances(gpu), key=lambda i: i.gpu_instance_id)
                try:
                    if held and step % 5 == 4:
                        driver.destroy(held[step * 7 % len(held)])
                        outcomes.append("gone")
                    else:
                        made = driver.create(gpu, *places[step * 11 % len(places)])
                        outcomes.append(f"{made.gpu_instance_id} at {made.placement}")
                except DriverError as error:
                    outcomes.append(type(error).__name__)
            assert outcomes[0] == outcomes[1], f"step {step}"
            of_library, simulated = (
                {(i.gpu_instance_id, i.profile_id, i.start) for i in d.list_instances(gpu)}
                for d in (bench.driver, fake)
            )
            assert of_library == simulated
