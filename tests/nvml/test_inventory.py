"""What the agent's driver reads from a library that is old, partly broken, or odd. One trap of NVML each."""

from __future__ import annotations

import json

import pytest

from mig_spawner.agent.driver.base import Activity, GPUInfo, Vitals
from mig_spawner.errors import DeviceLost, DeviceNotFound, DriverError, NotSupported
from mig_spawner.testing.gpu import Verb, find_model
from tests.nvml import probe
from tests.nvml.conftest import Bench, MakeBench
from tests.nvml.node import WITHOUT_MIG

ONE, ONE_DOUBLE, TWO, THREE, FOUR, SEVEN = 19, 15, 14, 9, 5, 0


def names(bench: Bench, index: int = 0) -> set[str]:
    return {str(p.name) for p in bench.driver.list_profiles(bench.node.gpu_uuids()[index])}


# -- profiles ----------------------------------------------------------------------------------------------------------


def test_a_kind_of_profile_that_nobody_knew_is_found(bench: Bench) -> None:
    """Constant 18 is beyond every wheel's COUNT."""
    gpu = bench.node.gpu_uuids()[0]
    bench.node.set_node(limit=20)
    bench.node.set_profile(gpu, FOUR, constant=18, id=99, name=b"MIG 5g.77gb+zz")
    found = next(p for p in bench.driver.list_profiles(gpu) if p.profile_id == 99)
    assert str(found.name) == "5g.77gb+zz"
    assert bench.driver.create(gpu, 99, 0, 4).profile_id == 99


def test_one_name_has_another_id_on_the_next_gpu(make_bench: MakeBench) -> None:
    bench = make_bench("a30", "a30")
    first, second = bench.ready(0), bench.ready(1)
    bench.node.set_profile(first, 14, id=15)
    ids = [
        next(p.profile_id for p in bench.driver.list_profiles(g) if str(p.name) == "1g.6gb") for g in (first, second)
    ]
    assert ids == [15, 14]
    bench.driver.create(first, 15, 0, 1)
    bench.driver.create(second, 14, 0, 1)
    with pytest.raises(NotSupported):
        bench.driver.create(second, 15, 1, 1)


def test_a_wrong_number_of_instances_hides_nothing(make_bench: MakeBench) -> None:
    """As NVML has it on the A30."""
    bench = make_bench("a30")
    gpu = bench.ready()
    bench.node.set_profile(gpu, 14, count=1)
    for start in range(4):
        bench.driver.create(gpu, 14, start, 1)
    assert [i.start for i in bench.driver.list_instances(gpu)] == [0, 1, 2, 3]


@pytest.mark.parametrize("model", ["a100-40gb", "a100-80gb", "h100-80gb-sxm", "a30-24gb"])
def test_a_driver_without_names_gets_them_computed(make_bench: MakeBench, model: str) -> None:
    bench = make_bench(model, generation=525)
    bench.ready()
    assert names(bench) == {str(p.profile.name) for p in find_model(model).profiles}


def test_a_name_that_is_no_text_is_computed(bench: Bench) -> None:
    bench.node.set_profile(bench.node.gpu_uuids()[0], THREE, name=b"MIG \xf8\xff")
    assert "3g.40gb" in names(bench)


def test_a_profile_whose_name_is_none_leaves_the_others(bench: Bench) -> None:
    bench.node.set_profile(bench.node.gpu_uuids()[0], THREE, name=b"MIG something else")
    assert names(bench) == {"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "4g.40gb", "7g.80gb"}


def test_a_profile_without_a_place_leaves_the_others(bench: Bench) -> None:
    bench.node.set_profile(bench.node.gpu_uuids()[0], THREE, starts=0)
    assert "3g.40gb" not in names(bench)
    assert len(names(bench)) == 6


def test_one_id_under_two_constants_is_one_profile(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.node.set_profile(gpu, FOUR, id=ONE, starts="7f", size=1, slices=1)
    assert [p.profile_id for p in bench.driver.list_profiles(gpu)].count(ONE) == 1
    bench.driver.create(gpu, ONE, 0, 1)
    assert len(bench.driver.list_instances(gpu)) == 1


def test_profiles_can_be_hidden_while_the_mode_is_off(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb")
    bench.node.hide_profiles_without_mig()
    assert names(bench) == set()
    bench.ready()
    assert len(names(bench)) == 7


def test_placements_can_be_hidden_while_the_mode_is_off(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb")
    bench.node.fail("nvmlDeviceGetGpuInstancePossiblePlacements_v2", 3, times=20)
    assert names(bench) == set()


# -- GPUs --------------------------------------------------------------------------------------------------------------


def test_a_mixed_node(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", WITHOUT_MIG, "h100-80gb")
    cut = bench.ready(0)
    bench.driver.create(cut, ONE, 0, 1)
    infos = bench.driver.list_gpus()
    assert [(g.model, g.mig_enabled) for g in infos] == [
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA L40S", None),
        ("NVIDIA H100 80GB HBM3", False),
    ]
    plain = infos[1].gpu_uuid
    assert (infos[1].memory_mib, infos[1].multiprocessors) == (46068, 142)
    assert not bench.driver.list_profiles(plain)
    assert not bench.driver.list_instances(plain)
    assert bench.driver.processes(plain, plain) == 0
    with pytest.raises(NotSupported):
        bench.driver.set_mig_mode(plain, True)
    assert [len(g.instances) for g in bench.run(probe.observe)] == [1, 0, 0]


def test_a_driver_from_before_mig(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", generation=440)
    (info,) = bench.driver.list_gpus()
    assert (info.mig_enabled, info.multiprocessors, info.problem) == (None, 0, "")
    assert not bench.driver.list_profiles(info.gpu_uuid)
    assert not bench.driver.list_instances(info.gpu_uuid)
    (document,) = bench.run(probe.observe)
    assert (document.mig_enabled, document.dynamic, document.health) == (None, False, "ok")


def test_no_gpus(make_bench: MakeBench) -> None:
    bench = make_bench()
    assert bench.driver.list_gpus() == ()
    assert bench.run(probe.observe) == ()


def test_a_gpu_without_a_readable_name_is_there_all_the_same(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    first, second = bench.node.gpu_uuids()
    bench.node.rename(first, b"\xf8\xff")
    assert [(g.gpu_uuid, g.model) for g in bench.driver.list_gpus()] == [
        (first, "unknown"),
        (second, "NVIDIA A100-SXM4-80GB"),
    ]
    assert {g.health for g in bench.run(probe.observe)} == {"ok"}
    bench.ready(0)
    assert bench.driver.create(first, ONE, 0, 1).gpu_uuid == first


def test_no_bytes_reach_a_report(bench: Bench) -> None:
    bench.driver.create(bench.node.gpu_uuids()[0], THREE, 0, 4)
    text = json.dumps([g.model_dump(mode="json") for g in bench.run(probe.observe)])
    assert "b'" not in text
    assert '"NVIDIA A100-SXM4-80GB"' in text


def test_bytes_and_text_give_the_same_report(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", WITHOUT_MIG, "a30")
    bench.driver.create(bench.ready(), THREE, 0, 4)
    text, octets = (
        json.dumps([g.model_dump(mode="json") for g in bench.run(look)])
        for look in (probe.observe, probe.observe_bytes)
    )
    assert octets == text
    assert "MIG-" in text


def test_an_answer_that_the_wheel_has_no_word_for_is_an_error_like_others(bench: Bench) -> None:
    """Its text comes from the library then. Errors of the wheel are no members of sets, which some tools that print them need."""
    (gpu,) = bench.node.gpu_uuids()
    bench.node.fail("nvmlDeviceGetGpuInstances", 777)
    told = bench.run(probe.formatted, "list_instances", gpu)
    assert "NVMLError" in told
    assert told.splitlines()[-1].startswith("mig_spawner.errors.DriverError: NVML answered 777 (")
    bench.node.fail("nvmlDeviceGetMemoryInfo", 777)
    assert "NVML answered 777" in bench.driver.list_gpus()[0].problem


def test_what_is_slow_or_misleads_is_never_asked(bench: Bench) -> None:
    """A look-up by UUID takes seconds while GPUs are cut; whether a handle is a MIG device is answered by what is not equal to 1;
    with MIG mode on there is no utilisation."""
    gpu = bench.node.gpu_uuids()[0]
    with bench.node.calls() as calls:
        made = bench.driver.create(gpu, THREE, 0, 4)
        bench.run(probe.observe)
        bench.driver.memory(gpu, str(made.mig_uuid))
        bench.driver.activity(gpu)
        bench.driver.destroy(made)
    misleading = {"nvmlDeviceGetHandleByUUID", "nvmlDeviceIsMigDeviceHandle", "nvmlDeviceGetUtilizationRates"}
    assert len(set(calls)) > 20
    assert not misleading & set(calls)


def test_no_window_is_shorter_than_nvidia_asks_for(make_bench: MakeBench) -> None:
    """Who looks sooner sees what the last whole window showed."""
    bench = make_bench("h100-80gb")
    gpu = bench.ready()
    made = bench.driver.create(gpu, ONE, 0, 1)
    number, device = made.gpu_instance_id, str(made.mig_uuid)
    assert bench.driver.activity(gpu) == {}
    bench.node.set_usage(device, sm=0.5, tensor=0, dram=0)
    seen = []
    for seconds in (0.06, 0.06, 0.09, 0.02):
        bench.run(probe.let_pass, seconds)
        seen.append(bench.driver.activity(gpu).get(number))
        bench.node.set_usage(device, sm=0.25, tensor=0, dram=0)
    assert seen == [None, Activity(0.25, 0, 0), Activity(0.25, 0, 0), Activity(0.25, 0, 0)]


def test_a_gpu_that_was_lost_before_the_agent_came_spoils_no_other(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "h100-80gb")
    lost, other = bench.node.gpu_uuids()
    bench.node.lose(lost)
    assert [g.gpu_uuid for g in bench.driver.list_gpus()] == [other]
    with pytest.raises(DeviceNotFound):
        bench.driver.list_instances(lost)
    bench.node.reboot()
    assert [g.gpu_uuid for g in bench.driver.list_gpus()] == [lost, other]


def test_a_gpu_that_gets_lost_says_why_and_comes_back(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "h100-80gb")
    lost, other = bench.ready(0), bench.ready(1)
    bench.driver.create(other, ONE, 0, 1)
    bench.node.lose(lost)
    infos = {g.gpu_uuid: g for g in bench.driver.list_gpus()}
    assert "NVML answered 15" in infos[lost].problem
    assert infos[other] == GPUInfo(other, "NVIDIA H100 80GB HBM3", 81920, 132, True, pci_device_id="0x233010DE")
    for call in (bench.driver.list_profiles, bench.driver.list_instances):
        with pytest.raises(DeviceLost):
            call(lost)
    with pytest.raises(DeviceLost):
        bench.driver.processes(lost, lost)
    healths = {g.gpu_uuid: (g.health, len(g.instances)) for g in bench.run(probe.observe)}
    assert healths == {lost: ("bad", 0), other: ("ok", 1)}
    bench.node.set_gpu(lost, lost=0)
    assert not any(g.problem for g in bench.driver.list_gpus())


def test_a_missing_right_is_a_sentence_and_the_gpu_stays_known(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    first, second = bench.node.gpu_uuids()
    bench.node.fail("nvmlDeviceGetMemoryInfo", 4, times=100, gpu_uuid=first)
    infos = bench.driver.list_gpus()
    assert [g.gpu_uuid for g in infos] == [first, second]
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in infos[0].problem
    assert not infos[1].problem
    assert [g.health for g in bench.run(probe.observe)] == ["bad", "ok"]
    bench.node.fail_no_more()
    assert [g.problem for g in bench.driver.list_gpus()] == ["", ""]


def test_an_index_that_means_another_gpu_now_misleads_nobody(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    first, second = bench.ready(0), bench.ready(1)
    mine = bench.driver.create(first, ONE, 0, 1)
    bench.node.swap()
    other = bench.driver.create(second, THREE, 4, 4)
    assert bench.driver.list_instances(first) == (mine,)
    assert bench.driver.list_instances(second) == (other,)
    bench.driver.destroy(mine)
    bench.node.swap()
    assert bench.driver.list_instances(first) == ()
    assert bench.driver.list_instances(second) == (other,)


# -- instances and processes -------------------------------------------------------------------------------------------


def test_mig_mode_with_nothing_cut_is_no_fault(bench: Bench) -> None:
    (document,) = bench.run(probe.observe)
    assert (document.mig_enabled, document.instances, document.health) == (True, (), "ok")
    assert len(document.profiles) == 7


def test_a_device_is_found_beyond_a_hole(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    made = [bench.driver.create(gpu, ONE, start, 1) for start in range(4)]
    for gone in made[:3]:
        bench.driver.destroy(gone)
    bench.node.set_processes(str(made[3].mig_uuid), 3)
    assert bench.driver.processes(gpu, str(made[3].mig_uuid)) == 3
    with pytest.raises(DeviceNotFound):
        bench.driver.processes(gpu, str(made[0].mig_uuid))


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_every_kind_of_process_counts(bench: Bench, kind: str) -> None:
    gpu = bench.node.gpu_uuids()[0]
    mine, other = bench.driver.create(gpu, ONE, 0, 1), bench.driver.create(gpu, ONE, 1, 1)
    bench.node.set_processes(str(mine.mig_uuid), 2, kind)
    assert bench.driver.processes(gpu, str(mine.mig_uuid)) == 2
    assert bench.driver.processes(gpu, str(other.mig_uuid)) == 0


def test_an_old_driver_has_older_calls_for_processes(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", generation=470)
    gpu = bench.node.gpu_uuids()[0]
    bench.node.set_processes(gpu, 1)
    bench.node.set_processes(gpu, 2, "graphics")
    assert bench.driver.processes(gpu, gpu) == 3


def test_processes_that_no_call_can_list_are_unknown(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb")
    gpu = bench.node.gpu_uuids()[0]
    bench.node.fail("nvmlDeviceGetGraphicsRunningProcesses_v3", 3)
    assert bench.driver.processes(gpu, gpu) == 0
    for code in (3, 999):
        bench.node.fail("nvmlDeviceGetComputeRunningProcesses_v3", code)
        with pytest.raises(DriverError):
            bench.driver.processes(gpu, gpu)
    bench.node.fail("nvmlDeviceGetComputeRunningProcesses_v3", 999)
    assert bench.run(probe.observe)[0].processes is None


def test_two_gpus_may_use_the_same_id(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    made = [bench.driver.create(bench.ready(index), ONE, 0, 1) for index in range(2)]
    assert made[0].gpu_instance_id == made[1].gpu_instance_id
    assert made[0].mig_uuid != made[1].mig_uuid
    bench.driver.destroy(made[0])
    assert bench.driver.list_instances(made[1].gpu_uuid) == (made[1],)


def test_what_others_made_is_seen(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bare = bench.run(probe.create, 0, TWO, 0, 2)
    (half,) = bench.driver.list_instances(gpu)
    assert (half.gpu_instance_id, half.half_made, half.mig_uuid) == (bare, True, None)
    bench.ask("nvmlGpuInstanceCreateComputeInstance", ("instance", 0, bare), 1)
    (whole,) = bench.driver.list_instances(gpu)
    assert whole.mig_uuid in bench.node.mig_uuids(gpu)


def test_reading_changes_nothing(bench: Bench) -> None:
    gpu = bench.node.gpu_uuids()[0]
    bench.driver.create(gpu, THREE, 0, 4)
    bench.run(probe.create, 0, ONE, 5, 1)
    with bench.node.calls() as calls:
        bench.run(probe.observe)
    assert calls
    changing = [c for c in calls if "Create" in c or "Destroy" in c or "Set" in c]
    assert set(changing) <= {"nvmlEventSetCreate", "nvmlEventSetWait_v2"}, "listening changes nothing either"


def test_a_fault_of_the_driver_spoils_the_gpu_and_no_other(make_bench: MakeBench) -> None:
    bench = make_bench("a100-80gb", "a100-80gb")
    first, second = bench.ready(0), bench.ready(1)
    bench.driver.create(second, ONE, 0, 1)
    bench.node.fail_next(Verb.LIST_INSTANCES, gpu_uuid=first)
    assert [g.health for g in bench.run(probe.observe)] == ["bad", "ok"]
    assert [g.health for g in bench.run(probe.observe)] == ["ok", "ok"]


def test_a_counter_that_cannot_be_read_does_not_make_a_gpu_sick(bench: Bench) -> None:
    for function in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues"):
        bench.node.fail(function, 999)
    (gpu,) = bench.node.gpu_uuids()
    assert bench.driver.vitals(gpu) == Vitals()
    assert bench.driver.vitals(gpu) == Vitals(0, False, False, None)


@pytest.mark.parametrize("generation", [470, 535])
def test_a_driver_that_does_not_say_what_a_gpu_needs_counts_all_the_same(
    make_bench: MakeBench, generation: int
) -> None:
    bench = make_bench("a100-80gb", generation=generation)
    (gpu,) = bench.node.gpu_uuids()
    bench.node.wear(gpu, memory_errors=1, recovery="reset")
    assert bench.driver.vitals(gpu) == Vitals(1, False, False, None, None)
    assert bench.run(probe.observe)[0].health == "draining"


def test_an_agent_that_comes_late_learns_of_a_gpu_that_broke_before(bench: Bench) -> None:
    (gpu,) = bench.node.gpu_uuids()
    bench.node.wear(gpu, recovery="reset")
    (document,) = bench.run(probe.observe)
    assert document.health == "draining"
    assert document.health_reason.startswith("Its driver says that it needs a reset.")
