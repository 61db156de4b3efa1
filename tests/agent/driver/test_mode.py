"""The contract of the driver port: MIG mode, resets and boots. The same tests run on every adapter (see `make_rig`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.errors import DeviceInUse, DeviceNotFound, DriverError, NotSupported
from mig_spawner.testing.gpu import Verb
from mig_spawner.testing.gpu.fault import ErrorKind

MakeRig = Callable[..., Any]

ONE, SEVEN = 19, 0


def test_with_mig_mode_off_there_is_nothing_and_nothing_can_be_made(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    assert rig.driver.list_instances(gpu) == ()
    with pytest.raises(NotSupported):
        rig.driver.create(gpu, ONE, 0, 1)


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


def test_switching_to_what_it_is_does_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.driver.set_mig_mode(gpu, True)
    assert rig.driver.list_instances(gpu) == (made,)


def test_one_gpu_changes_its_mode_and_no_other(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb")
    cut, other = rig.ready(0), rig.uuids[1]
    made = rig.driver.create(cut, ONE, 0, 1)
    rig.node.set_processes(made.mig_uuid, 1)
    rig.driver.set_mig_mode(other, True)
    rig.driver.set_mig_mode(other, False)
    assert rig.driver.list_instances(cut) == (made,)
    assert [g.mig_enabled for g in rig.driver.list_gpus()] == [True, False]


def test_a_process_on_one_gpu_keeps_no_other_from_changing(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb")
    busy, idle = rig.uuids
    rig.node.set_processes(busy, 1)
    with pytest.raises(DeviceInUse):
        rig.driver.set_mig_mode(busy, True)
    rig.driver.set_mig_mode(idle, True)
    assert [g.mig_enabled for g in rig.driver.list_gpus()] == [False, True]


@pytest.mark.parametrize("model", ["a100-80gb", "h100-80gb"])
def test_a_mode_that_could_not_be_had_waits_for_nothing(make_rig: MakeRig, model: str) -> None:
    rig = make_rig(model)
    gpu = rig.uuids[0]
    rig.node.set_processes(gpu, 1)
    with pytest.raises(DeviceInUse):
        rig.driver.set_mig_mode(gpu, True)
    assert rig.driver.vitals(gpu).mode_pending is None
    assert rig.driver.list_gpus()[0].mig_enabled is False


def test_a_mode_that_waits_is_not_the_mode(make_rig: MakeRig) -> None:
    rig = make_rig("h100-80gb")
    gpu = rig.uuids[0]
    rig.node.want_mode(gpu, True)
    assert rig.driver.list_gpus()[0].mig_enabled is False
    assert rig.driver.vitals(gpu).mode_pending is True
    assert rig.driver.list_instances(gpu) == ()
    rig.node.reboot()
    assert rig.driver.list_gpus()[0].mig_enabled is False, "the boot has dropped it"
    assert rig.driver.vitals(gpu).mode_pending is None


@pytest.mark.parametrize("error", [ErrorKind.NO_PERMISSION, ErrorKind.DRIVER_ERROR, ErrorKind.DEVICE_IN_USE], ids=str)
def test_a_refused_change_is_an_error_and_changes_nothing(make_rig: MakeRig, error: ErrorKind) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    rig.node.fail_next(Verb.SET_MIG_MODE, error)
    with pytest.raises(DriverError) as caught:
        rig.driver.set_mig_mode(gpu, True)
    assert type(caught.value).__name__ == error
    assert rig.driver.list_gpus()[0].mig_enabled is False


def test_a_half_made_instance_keeps_the_mode_on(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE)
    with pytest.raises(DeviceInUse):
        rig.driver.destroy(made)
    with pytest.raises(DeviceInUse):
        rig.driver.set_mig_mode(gpu, False)
    assert rig.driver.list_instances(gpu)[0].half_made


def test_off_and_on_again_a_gpu_can_be_cut_as_before(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    profiles = rig.driver.list_profiles(gpu)
    for enabled in (False, True):
        rig.driver.set_mig_mode(gpu, enabled)
    assert rig.uuids == (gpu,)
    assert rig.driver.list_profiles(gpu) == profiles
    rig.driver.create(gpu, SEVEN, 0, 8)


@pytest.mark.parametrize(("model", "after"), [("a100-80gb", True), ("a30-24gb", True), ("h100-80gb", False)])
def test_the_mode_outlives_a_boot_on_ampere_alone(make_rig: MakeRig, model: str, after: bool) -> None:
    rig = make_rig(model)
    rig.ready()
    rig.node.reboot()
    assert rig.driver.list_gpus()[0].mig_enabled is after


def test_a_lost_gpu_is_back_after_a_boot(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "h100-80gb")
    before = rig.driver.list_gpus()
    rig.node.lose(before[0].gpu_uuid)
    assert any(g.problem for g in rig.driver.list_gpus())
    rig.node.reboot()
    assert rig.driver.list_gpus() == before


def test_a_reset_by_others_takes_the_instances(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.driver.close()
    rig.node.reset_gpu(gpu)
    rig.driver.open()
    assert rig.driver.list_instances(gpu) == ()
    with pytest.raises(DeviceNotFound):
        rig.driver.destroy(made)
