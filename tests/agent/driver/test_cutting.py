"""The contract of the driver port: cutting and freeing. The same tests run on every adapter (see `make_rig`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mig_spawner.domain.gpu import Placement
from mig_spawner.errors import DeviceInUse, DeviceNotFound, DriverError, InsufficientResources, NotSupported
from mig_spawner.testing.gpu import Verb
from mig_spawner.testing.gpu.fault import ErrorKind

MakeRig = Callable[..., Any]

ONE, ONE_ME, TWO, THREE, FOUR, SEVEN = 19, 20, 14, 9, 5, 0


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


def test_only_the_device_that_was_seen_is_destroyed(make_rig: MakeRig) -> None:
    """Ids and places come back: another device there is somebody else's."""
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    for other in ("MIG-00000000-0000-5000-8000-000000000000", None):
        with pytest.raises(DeviceNotFound):
            rig.driver.destroy(replace(made, mig_uuid=other))
    assert rig.driver.list_instances(gpu) == (made,)


@pytest.mark.parametrize("model", ["a30-24gb", "a100-80gb", "h100-80gb", "rtx-pro-6000"])
def test_every_place_can_be_cut_and_freed(make_rig: MakeRig, model: str) -> None:
    rig = make_rig(model)
    gpu = rig.ready()
    for profile in rig.driver.list_profiles(gpu):
        for start in profile.starts:
            made = rig.driver.create(gpu, profile.profile_id, start, profile.size)
            assert made.mig_uuid is not None
            assert (made.profile_id, made.start, made.size) == (profile.profile_id, start, profile.size)
            assert rig.driver.memory(gpu, made.mig_uuid).total_mib == profile.memory_mib
            rig.driver.destroy(made)
    assert rig.driver.list_instances(gpu) == ()


@pytest.mark.parametrize(
    ("model", "places"),
    [
        pytest.param("a100-80gb", [(FOUR, 0, 4), (THREE, 4, 4)], id="4g and 3g"),
        pytest.param("a100-80gb", [(THREE, 4, 4), (FOUR, 0, 4)], id="3g and 4g"),
        pytest.param(
            "h100-80gb", [(ONE_ME, 6, 1), *((ONE, start, 1) for start in range(6))], id="seven, one with media"
        ),
        pytest.param("rtx-pro-6000", [(64, 0, 6), (67, 6, 3), (67, 9, 3)], id="all media beside none"),
        pytest.param("a30-24gb", [(6, 0, 2), (14, 2, 1), (14, 3, 1)], id="A30 with media"),
    ],
)
def test_what_fits_together_can_be_had_together(
    make_rig: MakeRig, model: str, places: list[tuple[int, int, int]]
) -> None:
    rig = make_rig(model)
    gpu = rig.ready()
    made = {rig.driver.create(gpu, *place) for place in places}
    assert set(rig.driver.list_instances(gpu)) == made


def test_scattered_instances_leave_what_their_places_leave(make_rig: MakeRig) -> None:
    """NVIDIA's DRA driver, issue 933: four of seven slices are free, and neither 3g nor 4g can be had."""
    rig = make_rig()
    gpu = rig.ready()
    for start in (0, 1, 5):
        rig.driver.create(gpu, ONE, start, 1)
    for place in ((THREE, 0, 4), (THREE, 4, 4), (FOUR, 0, 4)):
        with pytest.raises(InsufficientResources):
            rig.driver.create(gpu, *place)
    rig.driver.create(gpu, TWO, 2, 2)


def test_a_neighbour_keeps_its_device_and_its_processes_through_everything(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    neighbour = rig.driver.create(gpu, THREE, 4, 4)
    rig.node.set_processes(neighbour.mig_uuid, 1)
    for profile, start, size in ((ONE, 0, 1), (TWO, 2, 2), (FOUR, 0, 4)):
        rig.driver.destroy(rig.driver.create(gpu, profile, start, size))
        rig.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE)
        with pytest.raises(DriverError):
            rig.driver.create(gpu, profile, start, size)
        assert rig.driver.list_instances(gpu) == (neighbour,)
        assert rig.driver.processes(gpu, neighbour.mig_uuid) == 1


@pytest.mark.parametrize("error", [ErrorKind.NO_PERMISSION, ErrorKind.DRIVER_ERROR, ErrorKind.DEVICE_IN_USE], ids=str)
def test_a_create_that_fails_at_once_has_changed_nothing(make_rig: MakeRig, error: ErrorKind) -> None:
    rig = make_rig()
    gpu = rig.ready()
    rig.node.fail_next(Verb.CREATE_GPU_INSTANCE, error)
    with pytest.raises(DriverError) as caught:
        rig.driver.create(gpu, ONE, 0, 1)
    assert type(caught.value).__name__ == error
    assert rig.driver.list_instances(gpu) == ()
    rig.driver.create(gpu, ONE, 0, 1)


@pytest.mark.parametrize("error", [ErrorKind.NO_PERMISSION, ErrorKind.DRIVER_ERROR, ErrorKind.DEVICE_IN_USE], ids=str)
def test_a_destroy_that_fails_at_once_has_changed_nothing(make_rig: MakeRig, error: ErrorKind) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.fail_next(Verb.DESTROY_COMPUTE_INSTANCE, error)
    with pytest.raises(DriverError) as caught:
        rig.driver.destroy(made)
    assert type(caught.value).__name__ == error
    assert rig.driver.list_instances(gpu) == (made,)


def test_what_a_monitor_holds_open_keeps_its_place_until_it_lets_go(make_rig: MakeRig) -> None:
    """NVIDIA/go-nvml#146: the compute instance goes, its GPU instance stays in use though no process is shown."""
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, THREE, 0, 4)
    rig.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE, times=3)
    for _ in range(3):
        with pytest.raises(DeviceInUse):
            rig.driver.destroy(made)
        (left,) = rig.driver.list_instances(gpu)
        assert (left.half_made, left.placement) == (True, made.placement)
        with pytest.raises(InsufficientResources):
            rig.driver.create(gpu, ONE, 3, 1)
    rig.driver.destroy(made)
    assert rig.driver.list_instances(gpu) == ()


def test_a_slow_driver_is_waited_for(make_rig: MakeRig) -> None:
    rig = make_rig()
    gpu = rig.ready()
    made = rig.driver.create(gpu, ONE, 0, 1)
    rig.node.delay(Verb.DESTROY_GPU_INSTANCE, 0.2)
    before = time.monotonic()
    rig.driver.destroy(made)
    assert time.monotonic() - before >= 0.2
    assert rig.driver.list_instances(gpu) == ()
