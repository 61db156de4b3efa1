"""A simulated node behaves, and misbehaves, as hardware was seen to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import (
    DeviceInUse,
    DeviceLost,
    DeviceNotFound,
    DriverError,
    InsufficientResources,
    InvalidRequest,
    NoPermission,
    NotSupported,
)
from mig_spawner.testing.gpu import SimulatedNode, Verb
from mig_spawner.testing.gpu.board import SimulatedInstance
from mig_spawner.testing.gpu.fault import ErrorKind

ONE, TWO, THREE = 19, 14, 9


@pytest.fixture
def node() -> SimulatedNode:
    node = SimulatedNode("node-a", ["a100-80gb", "h100-80gb"])
    for gpu in node.gpu_uuids():
        node.set_mig_mode(gpu, True)
    return node


@pytest.fixture
def ampere(node: SimulatedNode) -> str:
    return node.gpu_uuids()[0]


@pytest.fixture
def hopper(node: SimulatedNode) -> str:
    return node.gpu_uuids()[1]


def cut(node: SimulatedNode, gpu: str, start: int, profile: int = ONE, size: int = 1) -> SimulatedInstance:
    made = node.create_gpu_instance(gpu, profile, start, size)
    return node.create_compute_instance(gpu, made.gpu_instance_id)


def remove(node: SimulatedNode, instance: SimulatedInstance) -> None:
    node.destroy_compute_instance(instance.gpu_uuid, instance.gpu_instance_id)
    node.destroy_gpu_instance(instance.gpu_uuid, instance.gpu_instance_id)


def test_mig_indices_have_holes(node: SimulatedNode, ampere: str) -> None:
    first, second, third = (cut(node, ampere, start) for start in (0, 1, 2))
    remove(node, second)
    assert node.mig_device(ampere, 0).mig_uuid == first.mig_uuid
    with pytest.raises(DeviceNotFound):
        node.mig_device(ampere, 1)
    assert node.mig_device(ampere, 2).mig_uuid == third.mig_uuid
    assert cut(node, ampere, 5).device_index == 1, "a hole is filled by the next one"


def test_things_go_in_the_order_they_came(node: SimulatedNode, ampere: str) -> None:
    made = cut(node, ampere, 0)
    node.set_processes(str(made.mig_uuid), 1)
    with pytest.raises(DeviceInUse, match="compute instance"):
        node.destroy_gpu_instance(ampere, made.gpu_instance_id)
    with pytest.raises(DeviceInUse, match="process"):
        node.destroy_compute_instance(ampere, made.gpu_instance_id)
    node.set_processes(str(made.mig_uuid), 0)
    remove(node, made)
    assert node.instances(ampere) == ()


def test_the_same_place_gets_the_same_uuid_again(node: SimulatedNode, ampere: str, hopper: str) -> None:
    first = cut(node, ampere, 3)
    remove(node, first)
    cut(node, ampere, 0)
    again = cut(node, ampere, 3)
    assert again.mig_uuid == first.mig_uuid
    assert again.gpu_instance_id != first.gpu_instance_id
    assert cut(node, hopper, 3).mig_uuid != first.mig_uuid
    assert SimulatedNode("node-b", ["a100-80gb"]).gpu_uuids()[0] != ampere
    assert SimulatedNode("node-a", ["a100-80gb"]).gpu_uuids()[0] == ampere


def test_instance_ids_are_no_map_of_placements(node: SimulatedNode, ampere: str, hopper: str) -> None:
    low_first = [cut(node, ampere, s).gpu_instance_id for s in (0, 1, 2)]
    assert low_first == [7, 8, 9], "as an H100 PCIe was seen to number"
    high_first = {s: cut(node, hopper, s).gpu_instance_id for s in (2, 1, 0)}
    assert high_first == {2: 7, 1: 8, 0: 9}
    assert cut(node, ampere, 4, THREE, 4).gpu_instance_id == 1


@pytest.mark.parametrize("profile", [ONE, 20])
def test_overlap_and_engines_are_one_and_the_same_refusal(node: SimulatedNode, ampere: str, profile: int) -> None:
    cut(node, ampere, 0, 20)
    with pytest.raises(InsufficientResources):
        node.create_gpu_instance(ampere, profile, 0 if profile == ONE else 1, 1)


def test_a_gpu_instance_takes_one_compute_instance_that_fills_it(node: SimulatedNode, ampere: str) -> None:
    made = cut(node, ampere, 0)
    with pytest.raises(InsufficientResources):
        node.create_compute_instance(ampere, made.gpu_instance_id)


def test_enabling_mig_resets_ampere_alone() -> None:
    node = SimulatedNode("node-a", ["a100-80gb", "h100-80gb"])
    for gpu in node.gpu_uuids():
        node.set_mig_mode(gpu, True)
    assert [b.resets for b in node.snapshot().boards] == [1, 0]


def test_a_mode_asked_for_in_use_stays_pending_on_ampere() -> None:
    node = SimulatedNode("node-a", ["a100-80gb", "h100-80gb"])
    for gpu in node.gpu_uuids():
        node.set_processes(gpu, 1)
        with pytest.raises(DeviceInUse):
            node.set_mig_mode(gpu, True)
        node.reset_gpu(gpu)
    assert [node.read_gpu(g)[1] for g in node.gpu_uuids()] == [True, False]


def test_after_a_boot_only_ampere_remembers_its_mode(node: SimulatedNode, ampere: str, hopper: str) -> None:
    made = cut(node, ampere, 0)
    cut(node, hopper, 0)
    node.set_processes(str(made.mig_uuid), 3)
    node.lose(hopper)
    before = node.boot_id()
    node.reboot()
    assert node.boot_id() != before
    assert [node.read_gpu(g)[1] for g in (ampere, hopper)] == [True, False]
    assert node.instances(ampere) == ()
    with pytest.raises(NotSupported):
        node.instances(hopper)


def test_a_lost_gpu_answers_nothing(node: SimulatedNode, ampere: str) -> None:
    node.lose(ampere)
    assert ampere in node.gpu_uuids()
    for call in (
        lambda: node.read_gpu(ampere),
        lambda: node.profiles(ampere),
        lambda: node.instances(ampere),
        lambda: node.processes(ampere, ampere),
        lambda: node.set_mig_mode(ampere, False),
    ):
        with pytest.raises(DeviceLost, match="fell off the bus"):
            call()


@pytest.mark.parametrize("verb", list(Verb), ids=str)
def test_any_call_can_be_told_to_fail_so_many_times(node: SimulatedNode, ampere: str, verb: Verb) -> None:
    made = cut(node, ampere, 0)
    calls: dict[Verb, Callable[[], object]] = {
        Verb.READ_GPU: lambda: node.read_gpu(ampere),
        Verb.LIST_PROFILES: lambda: node.profiles(ampere),
        Verb.LIST_INSTANCES: lambda: node.instances(ampere),
        Verb.COUNT_PROCESSES: lambda: node.processes(ampere, str(made.mig_uuid)),
        Verb.CREATE_GPU_INSTANCE: lambda: node.create_gpu_instance(ampere, TWO, 2, 2),
        Verb.CREATE_COMPUTE_INSTANCE: lambda: cut(node, ampere, 5),
        Verb.DESTROY_COMPUTE_INSTANCE: lambda: node.destroy_compute_instance(ampere, made.gpu_instance_id),
        Verb.DESTROY_GPU_INSTANCE: lambda: remove(node, made),
        Verb.SET_MIG_MODE: lambda: node.set_mig_mode(ampere, True),
    }
    node.fail_next(verb, ErrorKind.NO_PERMISSION, times=1, gpu_uuid=ampere)
    with pytest.raises(NoPermission, match=verb):
        calls[verb]()
    assert node.snapshot().faults == []


def test_a_fault_counts_down_and_may_be_for_one_gpu(node: SimulatedNode, ampere: str, hopper: str) -> None:
    node.fail_next(Verb.READ_GPU, times=2, gpu_uuid=hopper)
    node.read_gpu(ampere)
    for _ in range(2):
        with pytest.raises(DriverError):
            node.read_gpu(hopper)
    node.read_gpu(hopper)


def test_a_call_can_be_slow() -> None:
    waits: list[float] = []
    node = SimulatedNode("node-a", ["a100-80gb"], sleep=waits.append)
    (gpu,) = node.gpu_uuids()
    node.delay(Verb.SET_MIG_MODE, 2.5)
    node.set_mig_mode(gpu, True)
    node.read_gpu(gpu)
    node.delay(Verb.SET_MIG_MODE, 0)
    node.set_mig_mode(gpu, False)
    assert waits == [2.5]


def test_an_old_driver_lists_no_profiles_while_mig_is_off() -> None:
    node = SimulatedNode("node-a", ["h100-80gb"])
    (gpu,) = node.gpu_uuids()
    assert node.profiles(gpu)
    node.hide_profiles_without_mig()
    assert node.profiles(gpu) == ()
    node.set_mig_mode(gpu, True)
    assert len(node.profiles(gpu)) == 7


def test_processes_of_an_unknown_device(node: SimulatedNode) -> None:
    with pytest.raises(DeviceNotFound, match="MIG-nowhere"):
        node.set_processes("MIG-nowhere", 1)


@pytest.mark.parametrize(
    ("model", "layout", "starts"),
    [
        pytest.param("a100-80gb", "1g.10gb,1g.10gb,3g.40gb", {0, 4, 5}, id="the largest goes first"),
        pytest.param("a100-80gb", "1g.10gb,1g.10gb,1g.10gb,4g.40gb", {0, 4, 5, 6}, id="order does not matter"),
        pytest.param("a100-80gb", "1g.20gb,1g.20gb,1g.20gb,1g.20gb", {0, 2, 4, 6}, id="double memory"),
        pytest.param("a30-24gb", "2g.12gb,1g.6gb,1g.6gb", {0, 2, 3}, id="A30"),
    ],
)
def test_an_admin_can_cut_by_hand(model: str, layout: str, starts: set[int]) -> None:
    node = SimulatedNode("node-a", [model])
    (gpu,) = node.gpu_uuids()
    made = node.cut(gpu, [ProfileName.parse(w) for w in layout.split(",")])
    assert {i.placement.start for i in made} == starts
    assert [str(i.profile.name) for i in made] == layout.split(",")
    with pytest.raises(DeviceInUse, match="not empty"):
        node.cut(gpu, [ProfileName.parse("1g.10gb" if model == "a100-80gb" else "1g.6gb")])


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        pytest.param("4g.40gb,4g.40gb", "do not fit together", id="overlap"),
        pytest.param("1g.10gb+me,1g.10gb+me", "do not fit together", id="engines"),
        pytest.param("1g.10gb," * 8 + "1g.10gb", "do not fit together", id="too many"),
        pytest.param("1g.5gb", r"offers no 1g\.5gb. It offers 1g\.10gb", id="another GPU's profile"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_and_nothing_done(layout: str, reason: str) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    (gpu,) = node.gpu_uuids()
    before = node.snapshot()
    with pytest.raises(InvalidRequest, match=reason):
        node.cut(gpu, [ProfileName.parse(w) for w in layout.split(",")])
    assert node.snapshot() == before


def test_a_file_lets_others_see_and_disturb_the_same_gpus(state_file: Path) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"], state_file=state_file)
    (gpu,) = node.gpu_uuids()
    node.set_mig_mode(gpu, True)
    made = cut(node, gpu, 0)
    other = SimulatedNode.open(state_file)
    assert other.instances(gpu) == node.instances(gpu)
    other.set_processes(str(made.mig_uuid), 1)
    with pytest.raises(DeviceInUse):
        node.destroy_compute_instance(gpu, made.gpu_instance_id)
    other.fail_next(Verb.READ_GPU)
    with pytest.raises(DriverError):
        node.read_gpu(gpu)
    assert sorted(p.name for p in state_file.parent.iterdir()) == ["node-a.json", "node-a.json.lock"]


def test_a_file_of_other_gpus_is_not_taken(state_file: Path) -> None:
    SimulatedNode("node-a", ["a100-80gb"], state_file=state_file)
    with pytest.raises(InvalidRequest, match=r"holds other GPUs \(a100-80gb of node node-a\)"):
        SimulatedNode("node-a", ["a30-24gb"], state_file=state_file)
    with pytest.raises(InvalidRequest, match="holds other GPUs"):
        SimulatedNode("node-b", ["a100-80gb"], state_file=state_file)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"node": "x", "boards": 3}', "\x00"], ids=repr)
def test_a_file_that_is_something_else_is_refused(state_file: Path, content: str) -> None:
    state_file.parent.mkdir()
    state_file.write_text(content)
    with pytest.raises(InvalidRequest, match="no file of simulated GPUs"):
        SimulatedNode("node-a", ["a100-80gb"], state_file=state_file)


def test_no_file_to_open(state_file: Path) -> None:
    with pytest.raises(InvalidRequest, match="Start the agent"):
        SimulatedNode.open(state_file)


def test_too_many_gpus() -> None:
    with pytest.raises(InvalidRequest, match="at most 16"):
        SimulatedNode("node-a", ["a30-24gb"] * 17)


def test_no_two_devices_share_a_name_whatever_was_made_before() -> None:
    node = SimulatedNode("node-a", ["a100-80gb", "a100-80gb"])
    names: dict[tuple[str, int, int], set[str | None]] = {}
    for gpu in node.gpu_uuids():
        node.set_mig_mode(gpu, True)
        for profile in node.profiles(gpu):
            for start in (*profile.starts, *profile.starts):
                made = cut(node, gpu, start, profile.profile_id, profile.size)
                names.setdefault((gpu, start, profile.size), set()).add(made.mig_uuid)
                remove(node, made)
    assert {len(given) for given in names.values()} == {1}
    assert len(set.union(*names.values())) == len(names) == 2 * 14
