"""The contract of the driver port. The same tests run on every adapter (see `make_rig`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mig_spawner.agent.driver.base import Activity, Event, Instance, Memory, Vitals
from mig_spawner.domain.gpu import Placement
from mig_spawner.errors import DeviceInUse, DeviceLost, DeviceNotFound, DriverError, InsufficientResources, NotSupported
from mig_spawner.testing.gpu import Verb, find_model
from mig_spawner.testing.gpu.fault import ErrorKind

MakeRig = Callable[..., Any]

ONE, ONE_ME, TWO, THREE, FOUR, SEVEN = 19, 20, 14, 9, 5, 0


def test_gpus_are_listed_in_order_with_what_they_are(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb", "a30-24gb")
    first, second, third = rig.driver.list_gpus()
    assert len({first.gpu_uuid, second.gpu_uuid, third.gpu_uuid}) == 3
    assert first.gpu_uuid.startswith("GPU-")
    assert (first.model, first.memory_mib, first.multiprocessors) == ("NVIDIA A100-SXM4-80GB", 81920, 108)
    assert third.model == "NVIDIA A30"
    assert [g.mig_enabled for g in (first, second, third)] == [False] * 3
    assert not first.problem


@pytest.mark.parametrize("model", ["a30-24gb", "a100-80gb", "h100-80gb", "rtx-pro-6000"])
def test_profiles_come_with_their_placements(make_rig: MakeRig, model: str) -> None:
    rig = make_rig(model)
    listed = rig.driver.list_profiles(rig.ready())
    assert sorted(listed, key=lambda p: p.profile_id) == sorted(
        find_model(model).gpu("x").profiles, key=lambda p: p.profile_id
    )


def test_a_created_instance_is_a_mig_device_where_it_was_asked_for(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, THREE, 4, 4)
    assert (made.gpu_uuid, made.profile_id, made.placement) == (gpu, THREE, Placement(gpu, 4, 4))
    assert made.mig_uuid is not None
    assert made.mig_uuid.startswith("MIG-")
    assert (made.compute_instances, made.half_made) == (1, False)
    assert rig.driver.list_instances(gpu) == (made,)
    assert rig.driver.processes(gpu, made.mig_uuid) == 0


def test_every_instance_has_its_own_numbers(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    for start in (5, 0, 3, 6, 1):
        rig.driver.create(gpu, ONE, start, 1)
    rig.driver.destroy(next(i for i in rig.driver.list_instances(gpu) if i.start == 3))
    rig.driver.create(gpu, ONE, 4, 1)
    seen = rig.driver.list_instances(gpu)
    assert sorted(i.start for i in seen) == [0, 1, 4, 5, 6]
    assert len({i.mig_uuid for i in seen}) == len({i.gpu_instance_id for i in seen}) == 5


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        pytest.param([(ONE, 3, 1)], (FOUR, 0, 4), id="overlap"),
        pytest.param([(THREE, 0, 4)], (THREE, 0, 4), id="the same place"),
        pytest.param([(ONE_ME, 0, 1)], (ONE_ME, 1, 1), id="engines used up"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_way(
    make_rig: MakeRig, there: list[tuple[int, int, int]], wanted: tuple[int, int, int]
) -> None:
    rig = make_rig()
    gpu = rig.ready()
    for place in there:
        rig.driver.create(gpu, *place)
    before = rig.driver.list_instances(gpu)
    with pytest.raises(InsufficientResources):
        rig.driver.create(gpu, *wanted)
    assert rig.driver.list_instances(gpu) == before


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param((4711, 0, 1), id="no such profile"),
        pytest.param((THREE, 2, 4), id="no such start"),
        pytest.param((THREE, 0, 3), id="another size"),
        pytest.param((ONE, 7, 1), id="the eighth slice"),
    ],
)
def test_what_the_gpu_does_not_offer_is_not_supported(make_rig: MakeRig, wanted: tuple[int, int, int]) -> None:
    rig = make_rig()
    gpu = rig.ready()
    with pytest.raises(NotSupported):
        rig.driver.create(gpu, *wanted)
    assert rig.driver.list_instances(gpu) == ()


def test_with_mig_mode_off_there_is_nothing_and_nothing_can_be_made(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    assert rig.driver.list_instances(gpu) == ()
    with pytest.raises(NotSupported):
        rig.driver.create(gpu, ONE, 0, 1)


def test_destroying_frees_the_place_and_happens_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, SEVEN, 0, 8)
    rig.driver.destroy(made)
    assert rig.driver.list_instances(gpu) == ()
    with pytest.raises(DeviceNotFound):
        rig.driver.destroy(made)
    rig.driver.create(gpu, ONE, 0, 1)


def test_an_instance_with_a_process_stays(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.set_processes(made.mig_uuid, 2)
    assert rig.driver.processes(gpu, made.mig_uuid) == 2
    with pytest.raises(DeviceInUse):
        rig.driver.destroy(made)
    assert rig.driver.list_instances(gpu) == (made,)
    rig.node.set_processes(made.mig_uuid, 0)
    rig.driver.destroy(made)


def test_an_id_that_means_something_else_now_is_not_destroyed(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    old = rig.driver.create(gpu, ONE, 0, 1)
    rig.driver.destroy(old)
    new = rig.driver.create(gpu, ONE, 5, 1)
    assert new.gpu_instance_id == old.gpu_instance_id, "or this test says nothing"
    with pytest.raises(DeviceNotFound):
        rig.driver.destroy(old)
    assert rig.driver.list_instances(gpu) == (new,)


def test_a_create_that_fails_half_way_leaves_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    rig.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE)
    with pytest.raises(DriverError):
        rig.driver.create(gpu, ONE, 0, 1)
    assert rig.driver.list_instances(gpu) == ()


def test_a_create_that_cannot_be_undone_is_seen_half_made_and_can_be_removed(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    rig.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE, ErrorKind.INSUFFICIENT_RESOURCES)
    rig.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE)
    with pytest.raises(InsufficientResources):
        rig.driver.create(gpu, THREE, 0, 4)
    (half,) = rig.driver.list_instances(gpu)
    assert half.half_made
    assert (half.mig_uuid, half.placement) == (None, Placement(gpu, 0, 4))
    rig.driver.destroy(half)
    assert rig.driver.list_instances(gpu) == ()


def test_a_destroy_that_stops_half_way_can_be_finished(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE)
    with pytest.raises(DeviceInUse):
        rig.driver.destroy(made)
    (half,) = rig.driver.list_instances(gpu)
    assert half.half_made
    rig.driver.destroy(half)
    assert rig.driver.list_instances(gpu) == ()


@pytest.mark.parametrize("model", ["a100-80gb", "h100-80gb"])
def test_mig_mode_changes_on_an_idle_empty_gpu_alone(make_rig: MakeRig, model: str) -> None:
    rig = make_rig(model)
    gpu = rig.uuids[0]
    rig.node.set_processes(gpu, 1)
    assert rig.driver.processes(gpu, gpu) == 1
    with pytest.raises(DeviceInUse):
        rig.driver.set_mig_mode(gpu, True)
    rig.node.set_processes(gpu, 0)
    rig.driver.set_mig_mode(gpu, True)
    assert rig.driver.list_gpus()[0].mig_enabled is True
    made = rig.driver.create(gpu, rig.driver.list_profiles(gpu)[0].profile_id, 0, 1)
    with pytest.raises(DeviceInUse):
        rig.driver.set_mig_mode(gpu, False)
    assert rig.driver.list_instances(gpu) == (made,)
    rig.driver.destroy(made)
    rig.driver.set_mig_mode(gpu, False)
    assert rig.driver.list_gpus()[0].mig_enabled is False


def test_a_mode_that_could_not_be_had_does_not_come_with_the_next_boot(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb")
    gpu = rig.uuids[0]
    rig.node.set_processes(gpu, 1)
    with pytest.raises(DeviceInUse):
        rig.driver.set_mig_mode(gpu, True)
    rig.node.reboot()
    assert rig.driver.list_gpus()[0].mig_enabled is False


def test_only_the_device_that_was_seen_is_destroyed(make_rig: MakeRig) -> None:
    """Ids and places come back: another device there is somebody else's."""
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    for other in ("MIG-00000000-0000-5000-8000-000000000000", None):
        with pytest.raises(DeviceNotFound):
            rig.driver.destroy(replace(made, mig_uuid=other))
    assert rig.driver.list_instances(gpu) == (made,)


def test_switching_to_what_it_is_does_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.driver.set_mig_mode(gpu, True)
    assert rig.driver.list_instances(gpu) == (made,)


def test_a_lost_gpu_says_so_and_spoils_no_other(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb")
    gpu, other = rig.ready(0), rig.ready(1)
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.lose(gpu)
    infos = {g.gpu_uuid: g for g in rig.driver.list_gpus()}
    assert infos[gpu].problem
    assert (infos[gpu].model, infos[gpu].mig_enabled) == ("NVIDIA A100-SXM4-80GB", None)
    assert not infos[other].problem
    with pytest.raises(DeviceLost):
        rig.driver.list_instances(gpu)
    with pytest.raises(DeviceLost):
        rig.driver.destroy(made)
    with pytest.raises(DeviceLost):
        rig.driver.create(gpu, ONE, 1, 1)
    rig.driver.create(other, ONE, 1, 1)


def test_processes_that_cannot_be_read_are_not_called_none(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.set_processes(made.mig_uuid, None)
    with pytest.raises(DriverError):
        rig.driver.processes(gpu, made.mig_uuid)
    with pytest.raises(DeviceNotFound):
        rig.driver.processes(gpu, "MIG-00000000-0000-0000-0000-000000000000")


def test_instances_do_not_survive_a_boot(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    rig.driver.create(gpu, ONE, 0, 1)
    before = rig.driver.boot_id()
    assert rig.driver.boot_id() == before
    rig.node.reboot()
    assert rig.driver.boot_id() != before
    assert rig.driver.list_instances(gpu) == ()


def test_an_unknown_gpu_is_not_found(make_rig: MakeRig) -> None:
    rig = make_rig()
    unknown = Instance("GPU-x", 1, ONE, 0, 1, None, 0)
    with pytest.raises(DeviceNotFound):
        rig.driver.list_profiles("GPU-x")
    with pytest.raises(DeviceNotFound):
        rig.driver.destroy(unknown)


def test_a_session_can_be_closed_twice(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.driver.close()
    rig.driver.close()


# -- health and use ----------------------------------------------------------------------------------------------------


def test_a_gpu_that_is_well_counts_nothing(make_rig: MakeRig) -> None:
    rig = make_rig("h100-80gb")
    assert rig.driver.vitals(rig.uuids[0]) == Vitals(0, False, False, None)


def test_what_a_gpu_counts_is_read_and_forgotten_with_a_boot(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "h100-80gb")
    sick, well = rig.uuids
    rig.node.wear(sick, memory_errors=3, remap_pending=True, remap_failed=True)
    rig.node.want_mode(sick, True)
    assert rig.driver.vitals(sick) == Vitals(3, True, True, True)
    assert rig.driver.vitals(well) == Vitals(0, False, False, None)
    rig.node.reboot()
    assert rig.driver.vitals(sick) == Vitals(0, False, True, None)


def test_the_vitals_of_a_lost_gpu_are_an_error(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    rig.node.lose(gpu)
    with pytest.raises(DeviceLost):
        rig.driver.vitals(gpu)


def test_each_event_is_heard_once_in_order(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "h100-80gb")
    first, second = rig.uuids
    assert rig.driver.events() == ()
    rig.node.announce(second, 48)
    rig.node.announce(first, 31, 7)
    assert rig.driver.events() == (Event(second, 48), Event(first, 31, 7))
    assert rig.driver.events() == ()


def test_the_last_word_of_a_lost_gpu_is_heard(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    assert rig.driver.events() == ()
    rig.node.announce(gpu, 79)
    rig.node.lose(gpu)
    assert rig.driver.list_gpus()[0].problem
    assert rig.driver.events() == (Event(gpu, 79),)


def test_memory_of_a_device_and_of_an_uncut_gpu(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    idle = rig.driver.memory(gpu, gpu)
    assert (idle.used_mib < 100, idle.total_mib) == (True, 81920)
    rig.driver.set_mig_mode(gpu, True)
    made, other = rig.driver.create(gpu, ONE, 0, 1), rig.driver.create(gpu, THREE, 4, 4)
    rig.node.set_usage(str(made.mig_uuid), memory_mib=7000)
    assert rig.driver.memory(gpu, str(made.mig_uuid)) == Memory(7000, 9728)
    assert rig.driver.memory(gpu, str(other.mig_uuid)).used_mib < 100
    rig.driver.destroy(made)
    with pytest.raises(DeviceNotFound):
        rig.driver.memory(gpu, str(made.mig_uuid))


def test_activity_is_of_the_time_between_two_looks(make_rig: MakeRig) -> None:
    rig = make_rig("h100-80gb")
    gpu = rig.ready()
    busy, idle = rig.driver.create(gpu, ONE, 0, 1), rig.driver.create(gpu, ONE, 1, 1)
    assert rig.driver.activity(gpu) == {}, "there was no last time"
    rig.node.set_usage(str(busy.mig_uuid), sm=0.75, tensor=0.5, dram=0.25)
    time.sleep(0.11)  # what NVIDIA asks for between two samples
    seen = rig.driver.activity(gpu)
    assert seen == {busy.gpu_instance_id: Activity(0.75, 0.5, 0.25), idle.gpu_instance_id: Activity(0, 0, 0)}
    # The same id, and even the same device, after destroy and create: what was measured before is not its own.
    rig.driver.destroy(busy)
    rig.driver.activity(gpu)
    again = rig.driver.create(gpu, ONE, 0, 1)
    assert again.gpu_instance_id == busy.gpu_instance_id
    assert again.gpu_instance_id not in rig.driver.activity(gpu)


def test_ampere_has_no_activity_and_no_zero(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb")
    gpu = rig.ready()
    rig.driver.create(gpu, ONE, 0, 1)
    assert rig.driver.activity(gpu) == {}
    assert rig.driver.activity(gpu) == {}
