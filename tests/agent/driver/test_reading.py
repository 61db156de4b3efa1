"""The contract of the driver port: reading. The same tests run on every adapter (see `make_rig`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.agent.driver.base import Instance
from mig_spawner.errors import DeviceLost, DeviceNotFound, DriverError
from mig_spawner.testing.gpu import Verb, find_model
from mig_spawner.testing.gpu.fault import ErrorKind

MakeRig = Callable[..., Any]

ONE, TWO, THREE = 19, 14, 9


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


@pytest.mark.parametrize(
    ("model", "number"), [("a100-80gb", "0x20B210DE"), ("a30-24gb", "0x20B710DE"), ("h100-80gb", "0x233010DE")]
)
def test_the_pci_device_id_is_written_as_layouts_write_it(make_rig: MakeRig, model: str, number: str) -> None:
    assert make_rig(model).driver.list_gpus()[0].pci_device_id == number


def test_looking_twice_shows_the_same(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "h100-80gb")
    gpu = rig.ready(1)
    rig.driver.create(gpu, THREE, 0, 4)
    for look in (rig.driver.list_gpus, lambda: rig.driver.list_instances(gpu), lambda: rig.driver.list_profiles(gpu)):
        assert look() == look()


def test_a_session_that_is_begun_again_shows_the_same(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 3, 1)
    rig.driver.open()
    rig.driver.close()
    rig.driver.open()
    assert rig.driver.list_instances(gpu) == (made,)
    rig.driver.destroy(made)


def test_mig_mode_with_nothing_cut_is_an_ordinary_sight(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    (info,) = rig.driver.list_gpus()
    assert (info.mig_enabled, info.problem) == (True, "")
    assert rig.driver.list_instances(gpu) == ()
    assert len(rig.driver.list_profiles(gpu)) == 7


def test_an_old_driver_lists_profiles_only_with_mig_mode_on(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.node.hide_profiles_without_mig()
    assert rig.driver.list_profiles(rig.uuids[0]) == ()
    assert len(rig.driver.list_profiles(rig.ready())) == 7


def test_a_full_gpu_is_listed_whole(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = {rig.driver.create(gpu, ONE, start, 1) for start in range(7)}
    assert set(rig.driver.list_instances(gpu)) == made
    assert len(rig.driver.list_profiles(gpu)) == 7, "what it can be cut into does not go away when it is full"


def test_what_an_admin_cut_by_hand_is_seen_whole(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    rig.cut(gpu, TWO, 2)
    (seen,) = rig.driver.list_instances(gpu)
    assert (seen.profile_id, seen.start, seen.size, seen.half_made) == (TWO, 2, 2, False)
    assert rig.driver.processes(gpu, seen.mig_uuid) == 0
    rig.driver.destroy(seen)
    assert rig.driver.list_instances(gpu) == ()


def test_the_same_id_on_two_gpus_names_two_instances(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb")
    first, second = (rig.driver.create(rig.ready(index), ONE, 0, 1) for index in range(2))
    assert first.gpu_instance_id == second.gpu_instance_id, "or this test says nothing"
    assert first.mig_uuid != second.mig_uuid
    with pytest.raises(DeviceNotFound):
        rig.driver.processes(first.gpu_uuid, second.mig_uuid)
    rig.driver.destroy(first)
    assert rig.driver.list_instances(second.gpu_uuid) == (second,)


def test_processes_are_those_of_the_device_alone(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb")
    gpu, uncut = rig.ready(0), rig.uuids[1]
    devices = [rig.driver.create(gpu, ONE, start, 1).mig_uuid for start in (0, 6)]
    rig.node.set_processes(devices[1], 2)
    rig.node.set_processes(uncut, 3)
    assert [rig.driver.processes(gpu, d) for d in devices] == [0, 2]
    assert rig.driver.processes(uncut, uncut) == 3


@pytest.mark.parametrize("error", [ErrorKind.DRIVER_ERROR, ErrorKind.NO_PERMISSION], ids=str)
def test_a_gpu_that_cannot_be_read_now_keeps_its_place_and_its_name(make_rig: MakeRig, error: ErrorKind) -> None:
    rig = make_rig("a100-80gb", "a30-24gb")
    before = rig.driver.list_gpus()
    rig.node.fail_next(Verb.READ_GPU, error, gpu_uuid=before[0].gpu_uuid)
    seen = {g.gpu_uuid: g for g in rig.driver.list_gpus()}
    unread = seen[before[0].gpu_uuid]
    assert unread.problem
    assert (unread.model, unread.memory_mib, unread.mig_enabled) == (before[0].model, before[0].memory_mib, None)
    assert seen[before[1].gpu_uuid] == before[1]
    assert rig.driver.list_gpus() == before


@pytest.mark.parametrize("verb", [Verb.LIST_PROFILES, Verb.LIST_INSTANCES], ids=str)
def test_half_a_list_is_no_list(make_rig: MakeRig, verb: Verb) -> None:
    rig = make_rig()
    gpu = rig.ready()
    rig.driver.create(gpu, ONE, 0, 1)
    look = rig.driver.list_profiles if verb is Verb.LIST_PROFILES else rig.driver.list_instances
    before = look(gpu)
    rig.node.fail_next(verb)
    with pytest.raises(DriverError):
        look(gpu)
    assert look(gpu) == before


def test_a_lost_gpu_answers_no_question(make_rig: MakeRig) -> None:
    rig = make_rig("h100-80gb")
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.lose(gpu)
    questions: tuple[Callable[[], object], ...] = (
        lambda: rig.driver.list_profiles(gpu),
        lambda: rig.driver.processes(gpu, made.mig_uuid),
        lambda: rig.driver.processes(gpu, gpu),
        lambda: rig.driver.memory(gpu, made.mig_uuid),
        lambda: rig.driver.activity(gpu),
    )
    for question in questions:
        with pytest.raises(DeviceLost):
            question()


def test_an_error_can_be_kept_compared_and_logged(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    """Those of the wheel can be no member of a set, and comparing them with None raises."""
    rig = make_rig()
    with pytest.raises(DriverError) as caught:
        rig.driver.create(rig.uuids[0], ONE, 0, 1)
    assert len({caught.value, caught.value}) == 1
    assert (caught.value == None) is False  # noqa: E711  # that is what is asked
    logging.getLogger(__name__).error("It failed.", exc_info=caught.value)
    assert "Traceback" in caplog.text
