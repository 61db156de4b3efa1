"""The contract of the driver port: health and use. The same tests run on every adapter (see `make_rig`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.agent.driver.base import Activity, Event, Memory, Recovery, Vitals
from mig_spawner.errors import DeviceLost, DeviceNotFound

MakeRig = Callable[..., Any]

ONE, THREE = 19, 9
A_TENTH_S = 0.101
"""What NVIDIA asks for between two samples, and a bit."""


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


@pytest.mark.parametrize("need", list(Recovery), ids=str)
def test_what_a_gpu_needs_is_said_to_whoever_comes_later_until_it_has_it(make_rig: MakeRig, need: Recovery) -> None:
    rig = make_rig("a100-80gb", "h100-80gb")
    sick, well = rig.uuids
    rig.driver.close()
    rig.node.wear(sick, recovery=need.value)
    rig.driver.open()
    assert (rig.driver.vitals(sick).recovery, rig.driver.vitals(well).recovery) == (need, None)
    assert rig.driver.events() == ()
    rig.driver.close()
    rig.node.reset_gpu(sick)
    rig.driver.open()
    assert rig.driver.vitals(sick).recovery == (None if need is Recovery.RESET else need)
    rig.node.reboot()
    assert rig.driver.vitals(sick).recovery is None


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
    rig.let_pass(A_TENTH_S)
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


def test_a_reset_clears_what_it_can_repair(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    rig.node.wear(gpu, memory_errors=2, remap_pending=True, remap_failed=True)
    rig.driver.close()
    rig.node.reset_gpu(gpu)
    rig.driver.open()
    assert rig.driver.vitals(gpu) == Vitals(0, False, True, None)


def test_what_was_announced_before_a_reset_is_not_announced_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.uuids[0]
    assert rig.driver.events() == ()
    rig.node.announce(gpu, 48)
    assert rig.driver.events() == (Event(gpu, 48),)
    rig.driver.close()
    rig.node.reset_gpu(gpu)
    rig.driver.open()
    rig.driver.list_gpus()
    assert rig.driver.events() == ()


def test_events_of_many_gpus_keep_their_order(make_rig: MakeRig) -> None:
    rig = make_rig("a100-80gb", "a100-80gb", "h100-80gb")
    first, second, third = rig.uuids
    assert rig.driver.events() == ()
    said = [(third, 13), (first, 31), (third, 94), (second, 63), (first, 79)]
    for gpu, xid in said:
        rig.node.announce(gpu, xid)
    assert [(e.gpu_uuid, e.xid) for e in rig.driver.events()] == said


@pytest.mark.parametrize("model", ["a100-80gb", "h100-80gb"])
def test_memory_of_what_is_not_there_is_an_error_and_not_zero(make_rig: MakeRig, model: str) -> None:
    rig = make_rig(model)
    gpu = rig.ready()
    for unknown in ("MIG-00000000-0000-5000-8000-000000000000", ""):
        with pytest.raises(DeviceNotFound):
            rig.driver.memory(gpu, unknown)


def test_a_device_that_was_made_anew_between_two_looks_has_no_past(make_rig: MakeRig) -> None:
    """Nothing but the driver itself can know: id, place and UUID are the same."""
    rig = make_rig("h100-80gb")
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    assert rig.driver.activity(gpu) == {}
    rig.driver.destroy(made)
    assert rig.driver.create(gpu, ONE, 0, 1) == made
    rig.let_pass(A_TENTH_S)
    assert rig.driver.activity(gpu) == {}
