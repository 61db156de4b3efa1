"""How the agent's driver cuts and frees: in order, by explicit place, and never something else than it saw."""

from __future__ import annotations

import re
import time

import pytest

from mig_spawner.errors import (
    DeviceInUse,
    DeviceLost,
    DeviceNotFound,
    DriverError,
    InsufficientResources,
    NoPermission,
    NotSupported,
)
from mig_spawner.testing.gpu import Verb
from mig_spawner.testing.gpu.fault import ErrorKind
from tests.nvml import probe
from tests.nvml.conftest import Bench, MakeBench

ONE, ONE_DOUBLE, TWO, THREE, FOUR, SEVEN = 19, 15, 14, 9, 5, 0


@pytest.mark.parametrize("model", ["a30-24gb", "a100-80gb", "h100-80gb", "rtx-pro-6000"])
def test_every_place_can_be_cut_and_freed(make_bench: MakeBench, model: str) -> None:
    """Also that the compute instance fills it, whatever its number is: on the 1g with double memory it is 7."""
    bench = make_bench(model)
    gpu = bench.ready()
    for profile in bench.driver.list_profiles(gpu):
        for start in profile.starts:
            made = bench.driver.create(gpu, profile.profile_id, start, profile.size)
            assert (made.profile_id, made.start, made.size) == (profile.profile_id, start, profile.size)
            attributes = bench.ask("nvmlDeviceGetAttributes", ("mig", 0, 0))
            assert attributes["computeInstanceSliceCount"] == attributes["gpuInstanceSliceCount"]
            assert attributes["multiprocessorCount"] == profile.multiprocessors
            assert {made.mig_uuid} == bench.node.mig_uuids(gpu)
            bench.driver.destroy(made)
    assert bench.driver.list_instances(gpu) == ()


def test_the_place_is_always_said(bench: Bench) -> None:
    with bench.node.calls() as calls:
        bench.driver.create(bench.node.gpu_uuids()[0], ONE, 5, 1)
    assert "nvmlDeviceCreateGpuInstanceWithPlacement" in calls
    assert "nvmlDeviceCreateGpuInstance" not in calls


def test_a_driver_that_cannot_be_told_the_place_cuts_nothing(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", generation=470)
    gpu = bench.ready()
    with bench.node.calls() as calls, pytest.raises(NotSupported):
        bench.driver.create(gpu, ONE, 0, 1)
    assert not [c for c in calls if "Create" in c]
    assert bench.driver.list_instances(gpu) == ()


def test_three_scattered_instances_leave_what_their_places_leave(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    for start in (0, 1, 5):
        bench.driver.create(gpu, ONE, start, 1)
    for place in ((THREE, 0, 4), (THREE, 4, 4), (FOUR, 0, 4)):
        with pytest.raises(InsufficientResources):
            bench.driver.create(gpu, *place)
    bench.driver.create(gpu, TWO, 2, 2)


def test_a_create_that_fails_half_way_is_undone_in_order(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    neighbour = bench.driver.create(gpu, ONE, 6, 1)
    bench.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE, ErrorKind.INSUFFICIENT_RESOURCES)
    with bench.node.calls() as calls, pytest.raises(InsufficientResources):
        bench.driver.create(gpu, THREE, 0, 4)
    changes = [c for c in calls if "Create" in c or "Destroy" in c]
    assert changes == [
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlGpuInstanceDestroy",
    ]
    assert bench.driver.list_instances(gpu) == (neighbour,)


def test_a_compute_instance_that_is_said_to_be_made_and_is_not(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.node.fail("nvmlGpuInstanceCreateComputeInstance", 0)
    with pytest.raises(DriverError, match="Asked for 0:4"):
        bench.driver.create(gpu, THREE, 0, 4)
    assert bench.driver.list_instances(gpu) == ()


def test_a_missing_right_changes_nothing_and_is_named(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.node.fail_next(Verb.CREATE_GPU_INSTANCE, ErrorKind.NO_PERMISSION)
    with pytest.raises(NoPermission, match="NVIDIA_MIG_CONFIG_DEVICES=all"):
        bench.driver.create(gpu, ONE, 0, 1)
    assert bench.driver.list_instances(gpu) == ()


def test_destroying_takes_compute_instances_first(bench: Bench) -> None:
    made = bench.driver.create(bench.node.gpu_uuids()[0], THREE, 0, 4)
    with bench.node.calls() as calls:
        bench.driver.destroy(made)
    assert [c for c in calls if "Destroy" in c] == ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"]


def test_a_gpu_instance_that_a_monitor_holds_goes_when_it_lets_go(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = bench.driver.create(gpu, THREE, 0, 4)
    bench.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE, times=3)
    for _ in range(3):
        with pytest.raises(DeviceInUse, match="In use by another client"):
            bench.driver.destroy(made)
        (left,) = bench.driver.list_instances(gpu)
        assert (left.half_made, left.placement) == (True, made.placement)
        with pytest.raises(InsufficientResources):
            bench.driver.create(gpu, THREE, 0, 4)
    bench.driver.destroy(made)
    assert bench.driver.list_instances(gpu) == ()


def test_a_destroy_that_is_said_to_be_done_and_is_not(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = bench.driver.create(gpu, ONE, 0, 1)
    bench.node.fail("nvmlGpuInstanceDestroy", 0)
    with pytest.raises(DeviceInUse, match="still lists it"):
        bench.driver.destroy(made)
    assert len(bench.driver.list_instances(gpu)) == 1
    bench.driver.destroy(made)
    assert bench.driver.list_instances(gpu) == ()


def test_the_same_place_with_another_uuid_is_another_instance(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.node.set_node(repeat=0)
    old = bench.driver.create(gpu, ONE, 0, 1)
    bench.driver.destroy(old)
    new = bench.driver.create(gpu, ONE, 0, 1)
    assert (new.gpu_instance_id, new.placement) == (old.gpu_instance_id, old.placement)
    with bench.node.calls() as calls, pytest.raises(DeviceNotFound):
        bench.driver.destroy(old)
    assert not [c for c in calls if "Destroy" in c]
    assert bench.driver.list_instances(gpu) == (new,)


def test_a_half_made_instance_that_somebody_finished_is_left_alone(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = bench.run(probe.create, 0, ONE, 0, 1)
    (half,) = bench.driver.list_instances(gpu)
    bench.ask("nvmlGpuInstanceCreateComputeInstance", ("instance", 0, made), 0)
    with pytest.raises(DeviceNotFound, match="holds another MIG device now"):
        bench.driver.destroy(half)
    assert len(bench.node.mig_uuids(gpu)) == 1


def test_a_half_made_instance_elsewhere_is_another_one_though_it_has_the_id(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    number = bench.run(probe.create, 0, ONE, 0, 1)
    (half,) = bench.driver.list_instances(gpu)
    bench.ask("nvmlGpuInstanceDestroy", ("instance", 0, number))
    assert bench.run(probe.create, 0, ONE, 5, 1) == number
    with pytest.raises(DeviceNotFound, match="another one now"):
        bench.driver.destroy(half)
    assert [i.start for i in bench.driver.list_instances(gpu)] == [5]


def test_what_an_admin_cut_further_is_seen_as_such_and_left_alone(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = bench.run(probe.create, 0, THREE, 0, 4)
    for _ in range(2):
        bench.ask("nvmlGpuInstanceCreateComputeInstance", ("instance", 0, made), 0)
    (seen,) = bench.driver.list_instances(gpu)
    assert (seen.mig_uuid, seen.compute_instances, seen.half_made) == (None, 2, False)
    (document,) = bench.run(probe.observe)[0].instances
    assert (document.mig_uuid, document.processes) == (None, None)
    with pytest.raises(DeviceNotFound):
        bench.driver.destroy(seen)
    assert len(bench.node.mig_uuids(gpu)) == 2


def test_a_neighbour_keeps_its_device_through_everything(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    neighbour = bench.driver.create(gpu, THREE, 4, 4)
    bench.node.set_processes(str(neighbour.mig_uuid), 1)
    for profile, start, size in ((ONE, 0, 1), (TWO, 2, 2), (FOUR, 0, 4), (ONE_DOUBLE, 2, 2)):
        bench.driver.destroy(bench.driver.create(gpu, profile, start, size))
        assert bench.driver.list_instances(gpu) == (neighbour,)
        assert bench.driver.processes(gpu, str(neighbour.mig_uuid)) == 1


def test_a_gpu_that_gets_lost_while_it_is_cut(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE, ErrorKind.DEVICE_LOST)
    with pytest.raises(DeviceLost):
        bench.driver.create(gpu, ONE, 0, 1)
    bench.node.lose(gpu)
    with pytest.raises(DeviceLost):
        bench.driver.set_mig_mode(gpu, False)


def test_who_is_in_the_way_is_named(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made, neighbour = bench.driver.create(gpu, ONE, 0, 1), bench.driver.create(gpu, ONE, 1, 1)
    bench.node.set_processes(str(made.mig_uuid), 2)
    bench.node.set_processes(str(neighbour.mig_uuid), 1)
    mine, others = (
        {p["pid"] for p in bench.ask("nvmlDeviceGetComputeRunningProcesses_v3", ("mig", 0, index))} for index in (0, 1)
    )
    with pytest.raises(DeviceInUse, match="In use by process") as caught:
        bench.driver.destroy(made)
    assert all(re.search(rf"\b{pid}\b", str(caught.value)) for pid in mine)
    assert not any(re.search(rf"process.*\b{pid}\b", str(caught.value)) for pid in others)
    bench.node.set_processes(str(made.mig_uuid), 0)
    bench.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE)
    with pytest.raises(DeviceInUse, match="No process is listed on it: a monitor, such as DCGM"):
        bench.driver.destroy(made)


def test_who_keeps_the_mode_is_named(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    busy, idle = bench.node.gpu_uuids()
    bench.node.set_processes(busy, 1, "graphics")
    with pytest.raises(DeviceInUse, match=r"In use by process \d+"):
        bench.driver.set_mig_mode(busy, True)
    bench.node.fail("nvmlDeviceSetMigMode.activation", 19)
    with pytest.raises(DeviceInUse, match="a monitor, such as DCGM"):
        bench.driver.set_mig_mode(idle, True)
    assert [g.mig_enabled for g in bench.driver.list_gpus()] == [False, False]
    bench.driver.set_mig_mode(idle, True)


def test_a_slow_driver_is_waited_for(bench: Bench) -> None:
    bench.node.delay(Verb.DESTROY_GPU_INSTANCE, 0.3)
    made = bench.driver.create(bench.node.gpu_uuids()[0], ONE, 0, 1)
    before = time.monotonic()
    bench.driver.destroy(made)
    assert time.monotonic() - before >= 0.3
    assert bench.driver.list_instances(bench.node.gpu_uuids()[0]) == ()


# -- mode and session --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"), [(19, DeviceInUse), (16, DeviceInUse), (3, NotSupported), (999, DriverError)]
)
def test_the_second_status_of_a_mode_change_is_an_error(
    make_bench: MakeBench, status: int, kind: type[DriverError]
) -> None:
    bench = make_bench("a100-80gb")
    gpu = bench.node.gpu_uuids()[0]
    bench.node.fail("nvmlDeviceSetMigMode.activation", status)
    with pytest.raises(kind, match=f"NVML answered {status}"):
        bench.driver.set_mig_mode(gpu, True)
    assert bench.driver.list_gpus()[0].mig_enabled is False
    assert bench.node.gpu(gpu)["pending"] == 0, "nor does it wait for a reset"


def test_a_mode_that_waits_for_a_reset_is_not_taken_for_done(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb")
    gpu = bench.node.gpu_uuids()[0]
    bench.node.fail("nvmlDeviceSetMigMode.activation", 0)
    with pytest.raises(DeviceInUse, match="next reset"):
        bench.driver.set_mig_mode(gpu, True)
    assert bench.driver.list_gpus()[0].mig_enabled is False
    assert bench.node.gpu(gpu)["pending"] == 0, "the GPU is left as it was"


@pytest.mark.parametrize("index", [0, 1])
def test_a_change_of_mode_that_binds_gpus_anew_is_of_the_gpu_that_was_meant(make_bench: MakeBench, index: int) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    uuids = bench.node.gpu_uuids()
    bench.node.rebind_with_the_next_mode()
    bench.driver.set_mig_mode(uuids[index], True)
    assert bench.node.gpu_uuids() == uuids[::-1], "or this test says nothing"
    assert {g.gpu_uuid for g in bench.driver.list_gpus() if g.mig_enabled} == {uuids[index]}
    made = bench.driver.create(uuids[index], ONE, 0, 1)
    assert bench.node.mig_uuids(uuids[index]) == {made.mig_uuid}


@pytest.mark.parametrize(("model", "resets", "after_boot"), [("a100-80gb", 1, True), ("h100-80gb", 0, False)])
def test_the_mode_resets_an_ampere_and_outlives_a_boot_there_alone(
    make_bench: MakeBench, model: str, resets: int, after_boot: bool
) -> None:
    bench = make_bench(model)
    gpu = bench.ready()
    assert bench.node.gpu(gpu)["resets"] == resets
    bench.node.reboot()
    assert bench.driver.list_gpus()[0].mig_enabled is after_boot


def test_a_closed_session_lets_others_reset_the_gpu(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.driver.create(gpu, ONE, 0, 1)
    bench.driver.open()
    assert bench.node.in_session()
    bench.driver.close()
    assert not bench.node.in_session()
    bench.node.reset_gpu(gpu)
    bench.driver.open()
    assert bench.driver.list_instances(gpu) == ()


def test_a_closed_driver_stays_closed(bench: Bench) -> None:
    bench.driver.close()
    with pytest.raises(DriverError, match="NVML answered 1"):
        bench.driver.list_gpus()
    assert not bench.node.in_session()


def test_a_driver_that_is_unloaded_and_loaded_again(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = bench.driver.create(gpu, ONE, 0, 1)
    away = bench.node.path.rename(bench.node.path.with_suffix(".away"))
    for _ in range(2):
        with pytest.raises(DriverError, match="The NVIDIA driver is not loaded"):
            bench.driver.list_gpus()
        assert not bench.node.in_session()
    away.rename(bench.node.path)
    assert [g.gpu_uuid for g in bench.driver.list_gpus()] == [gpu]
    assert bench.driver.list_instances(gpu) == (made,)


def test_one_call_of_a_session_that_ended_is_enough_to_begin_another(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.run(probe.plain, "nvmlShutdown")
    assert bench.driver.list_instances(gpu) == ()
    assert bench.node.in_session()
