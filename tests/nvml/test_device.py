"""The C library as an unmodified `pynvml` sees it: GPUs, MIG devices, processes and MIG mode."""

from __future__ import annotations

import pytest

from tests.nvml import probe
from tests.nvml.conftest import Bench, MakeBench
from tests.nvml.node import WITHOUT_MIG

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


# -- MIG devices -------------------------------------------------------------------------------------------------------


def test_mig_indices_have_holes(bench: Bench) -> None:
    made = [device(bench, ONE, start, 1) for start in range(3)]
    bench.ask("nvmlComputeInstanceDestroy", ("compute", 0, made[1], 0))
    ask = "nvmlDeviceGetMigDeviceHandleByIndex"
    assert bench.ask("nvmlDeviceGetMaxMigDeviceCount", GPU) == 7
    assert bench.ask("nvmlDeviceGetGpuInstanceId", ("mig", 0, 2)) == made[2]
    assert [bench.code(ask, GPU, index) for index in (1, 3, 6)] == [NOT_FOUND] * 3


def test_a_handle_means_what_sits_there_now(bench: Bench) -> None:
    device(bench, ONE, 0, 1)
    held = bench.run(probe.hold, ("mig", 0, 0))
    before = bench.ask("nvmlDeviceGetUUID", held)
    (old,) = bench.driver.list_instances(bench.node.gpu_uuids()[0])
    bench.driver.destroy(old)
    assert bench.code("nvmlDeviceGetUUID", held) == INVALID
    device(bench, ONE, 5, 1)
    assert bench.ask("nvmlDeviceGetUUID", held) != before


def test_the_device_of_a_compute_instance_is_a_mig_device(bench: Bench) -> None:
    made = device(bench, THREE, 4, 4)
    found = bench.run(probe.identify, ("compute", 0, made, 0), "device")
    assert bench.ask("nvmlDeviceIsMigDeviceHandle", found) == 1
    assert bench.ask("nvmlDeviceIsMigDeviceHandle", GPU) == 0
    assert bench.ask("nvmlDeviceGetName", found) == "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    assert bench.ask("nvmlDeviceGetComputeInstanceId", found) == 0
    attributes = bench.ask("nvmlDeviceGetAttributes", found)
    assert (attributes["multiprocessorCount"], attributes["gpuInstanceSliceCount"]) == (42, 3)
    assert bench.code("nvmlDeviceGetAttributes", GPU) == NOT_SUPPORTED
    assert bench.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", found) == "handle"


def test_a_device_is_found_by_both_forms_of_its_uuid(bench: Bench) -> None:
    made = device(bench, ONE, 3, 1)
    uuid = bench.ask("nvmlDeviceGetUUID", ("mig", 0, 0))
    parent = bench.node.gpu_uuids()[0]
    for known in (uuid, parent, f"MIG-{parent}/{made}/0"):
        assert bench.run(probe.plain, "nvmlDeviceGetHandleByUUID", known) == "handle"
    for wrong in (f"MIG-{parent}/0/{made}", f"MIG-GPU-{parent}/{made}/0", uuid + " ", "MIG-"):
        with pytest.raises(probe.Code) as caught:
            bench.run(probe.plain, "nvmlDeviceGetHandleByUUID", wrong)
        assert caught.value.value == NOT_FOUND


def test_a_uuid_comes_back_with_its_place_unless_told_otherwise(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]

    def cut() -> str:
        made = bench.driver.create(gpu, ONE, 2, 1)
        bench.driver.destroy(made)
        return str(made.mig_uuid)

    assert cut() == cut()
    bench.node.set_node(repeat=0)
    assert cut() != cut()


def test_no_two_devices_of_two_gpus_share_a_uuid(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    places: dict[tuple[str, int, int], set[str | None]] = {}
    for index in range(2):
        gpu = bench.ready(index)
        for profile in bench.driver.list_profiles(gpu):
            for start in profile.starts:
                made = bench.driver.create(gpu, profile.profile_id, start, profile.size)
                places.setdefault((gpu, start, profile.size), set()).add(made.mig_uuid)
                bench.driver.destroy(made)
    assert {len(uuids) for uuids in places.values()} == {1}
    assert len(set.union(*places.values())) == len(places) == 2 * 14


# -- what a device answers ---------------------------------------------------------------------------------------------


def test_memory_of_gpu_and_device(bench: Bench) -> None:
    device(bench, THREE, 0, 4)
    whole, part = (bench.ask("nvmlDeviceGetMemoryInfo", where) for where in (GPU, ("mig", 0, 0)))
    assert (whole["total"], part["total"]) == (81920 << 20, 40192 << 20)
    assert whole["free"] + whole["used"] == whole["total"]
    newer = bench.ask("nvmlDeviceGetMemoryInfo", ("mig", 0, 0), version=0x02000028)
    assert newer["total"] == part["total"]


def test_utilisation_cannot_be_had_with_mig_mode_on(bench: Bench) -> None:
    device(bench, ONE, 0, 1)
    ask = "nvmlDeviceGetUtilizationRates"
    assert [bench.code(ask, where) for where in (GPU, ("mig", 0, 0))] == [NOT_SUPPORTED] * 2
    bench.driver.destroy(bench.driver.list_instances(bench.node.gpu_uuids()[0])[0])
    bench.driver.set_mig_mode(bench.node.gpu_uuids()[0], False)
    assert bench.ask(ask, GPU) == {"gpu": 0, "memory": 0}


def test_processes_name_their_instances(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = [device(bench, ONE, 0, 1), device(bench, THREE, 4, 4)]
    for index, count in enumerate((1, 2)):
        bench.node.set_processes(bench.ask("nvmlDeviceGetUUID", ("mig", 0, index)), count)
    ask = "nvmlDeviceGetComputeRunningProcesses_v3"
    assert [(p["gpuInstanceId"], p["computeInstanceId"]) for p in bench.ask(ask, ("mig", 0, 1))] == [(made[1], 0)] * 2
    of_all = bench.ask(ask, GPU)
    assert sorted(p["gpuInstanceId"] for p in of_all) == sorted([made[0], made[1], made[1]])
    assert len({p["pid"] for p in of_all}) == 3
    for instance in bench.driver.list_instances(gpu):
        bench.node.set_processes(str(instance.mig_uuid), 0)
    assert bench.ask(ask, GPU) == []


def test_a_process_on_the_uncut_gpu_has_no_instance(make_bench: MakeBench) -> None:
    bench = make_bench("h100-80gb")
    bench.node.set_processes(bench.node.gpu_uuids()[0], 1)
    (process,) = bench.ask("nvmlDeviceGetComputeRunningProcesses_v3", GPU)
    assert process["gpuInstanceId"] == process["computeInstanceId"] == 0xFFFFFFFF


def test_identity(make_bench: MakeBench) -> None:
    bench = make_bench("a30", "h100-80gb")
    assert bench.run(probe.plain, "nvmlDeviceGetCount") == 2
    assert bench.ask("nvmlDeviceGetUUID", ("gpu", 1)) == bench.node.gpu_uuids()[1]
    assert bench.ask("nvmlDeviceGetCudaComputeCapability", ("gpu", 1)) == (9, 0)
    assert bench.ask("nvmlDeviceGetNumGpuCores", ("gpu", 1)) == 132 * 128
    assert bench.ask("nvmlDeviceGetMinorNumber", ("gpu", 1)) == 1
    info = bench.ask("nvmlDeviceGetPciInfo", GPU)
    assert (info["pciDeviceId"], info["busId"]) == (0x20B710DE, "00000000:10:00.0")
    assert bench.run(probe.plain, "nvmlDeviceGetHandleByPciBusId", info["busId"]) == "handle"
    assert bench.run(probe.plain, "nvmlSystemGetDriverVersion").startswith("580.")


def test_a_name_that_is_no_text_cannot_be_read_by_the_wheel(make_bench: MakeBench) -> None:
    bench = make_bench("a30", "a30")
    bench.node.rename(bench.node.gpu_uuids()[0], b"\xf8\x01")
    with pytest.raises(UnicodeDecodeError):
        bench.ask("nvmlDeviceGetName", GPU)
    assert bench.ask("nvmlDeviceGetName", ("gpu", 1)) == "NVIDIA A30"


def test_a_lost_gpu_answers_nothing_and_is_still_counted(make_bench: MakeBench) -> None:
    bench = make_bench("a100", "a100")
    first, second = bench.node.gpu_uuids()
    held = bench.run(probe.hold, GPU)
    bench.node.lose(first)
    assert bench.run(probe.plain, "nvmlDeviceGetCount") == 2
    assert bench.code("nvmlDeviceGetUUID", held) == LOST
    assert bench.code("nvmlDeviceGetUUID", GPU) == LOST
    assert bench.ask("nvmlDeviceGetUUID", ("gpu", 1)) == second


# -- mode --------------------------------------------------------------------------------------------------------------


def test_a_mode_that_cannot_be_had_now_is_a_status_and_no_error(make_bench: MakeBench) -> None:
    bench = make_bench("a100", "h100-80gb", WITHOUT_MIG)
    for uuid in bench.node.gpu_uuids()[:2]:
        bench.node.set_processes(uuid, 1)
    assert bench.ask("nvmlDeviceSetMigMode", GPU, 1) == IN_USE
    assert bench.ask("nvmlDeviceGetMigMode", GPU) == [0, 1]
    assert bench.ask("nvmlDeviceSetMigMode", ("gpu", 1), 1) == IN_USE
    assert bench.ask("nvmlDeviceGetMigMode", ("gpu", 1)) == [0, 0]
    assert bench.code("nvmlDeviceSetMigMode", ("gpu", 2), 1) == NOT_SUPPORTED
    assert bench.code("nvmlDeviceGetMigMode", ("gpu", 2)) == NOT_SUPPORTED


def test_without_mig_mode_nothing_of_mig_is_there(make_bench: MakeBench) -> None:
    bench = make_bench("a100")
    assert bench.ask("nvmlDeviceGetMaxMigDeviceCount", GPU) == 0
    assert bench.code("nvmlDeviceGetMigDeviceHandleByIndex", GPU, 0) == NOT_SUPPORTED
    assert bench.code("nvmlDeviceCreateGpuInstance", GPU, ONE) == NOT_SUPPORTED
    assert bench.ask(INFO, GPU, 0)["id"] == ONE
    bench.node.hide_profiles_without_mig()
    assert bench.code(INFO, GPU, 0) == NOT_SUPPORTED
    with pytest.raises(probe.Code):
        bench.run(probe.placements, 0, ONE)
