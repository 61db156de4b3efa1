"""The conversation with the allocator, over real HTTP."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mig_spawner.agent.driver.base import GPUInfo, Instance
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.loop import BackOff
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import DriverError
from mig_spawner.testing.gpu import SimulatedNode, Verb
from mig_spawner.testing.gpu.fault import ErrorKind
from mig_spawner.wire.node import DesiredInstance, DesiredWhole, DestroyableInstance, GPUDocument, Health, NodeReport
from mig_spawner.wire.problem import Problem, ProblemCode

Allocator = Any
StartAgent = Callable[..., Awaitable[Any]]
GPUOf = Callable[[NodeReport, str], GPUDocument]

ONE, THREE = 19, 9


def want(gpu_uuid: str, start: int = 0, *, profile: int = ONE, size: int = 1, lease: str = "l1") -> DesiredInstance:
    return DesiredInstance(lease_id=lease, gpu_uuid=gpu_uuid, profile_id=profile, start=start, size=size)


def gone(wanted: DesiredInstance) -> DestroyableInstance:
    return DestroyableInstance(
        gpu_uuid=wanted.gpu_uuid, profile_id=wanted.profile_id, start=wanted.start, size=wanted.size
    )


def starts(gpu: GPUDocument) -> list[int]:
    return sorted(i.start for i in gpu.instances if i.mig_uuid is not None)


async def test_the_first_report_shows_the_node(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent("a100-80gb", "a30-24gb")
    report: NodeReport = await allocator.until(lambda r: True)
    assert allocator.reports[0].applied_generation == 0
    assert report.simulated
    assert report.boot_id == agent.node.boot_id()
    first, second = report.gpus
    assert (first.model, first.health, first.dynamic, first.mig_enabled) == (
        "NVIDIA A100-SXM4-80GB",
        Health.OK,
        True,
        False,
    )
    assert [p.name for p in second.profiles] == ["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"]
    assert second.profiles[0].starts == (0, 1, 2, 3)


async def test_what_is_desired_is_made_and_told(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent()
    (gpu,) = agent.node.gpu_uuids()
    await allocator.settled()
    generation = await allocator.want(instances=(want(gpu), want(gpu, 4, profile=THREE, size=4, lease="l2")))
    report: NodeReport = await allocator.settled()
    assert report.applied_generation == generation
    assert starts(report.gpus[0]) == [0, 4]
    assert report.failures == ()
    assert {i.profile for i in report.gpus[0].instances} == {"1g.10gb", "3g.40gb"}


async def test_a_slice_is_told_before_the_next_one_is_made(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent()
    (gpu,) = agent.node.gpu_uuids()
    await allocator.settled()
    await allocator.want(instances=tuple(want(gpu, s, lease=f"l{s}") for s in range(3)))
    await allocator.settled()
    seen = [len(r.gpus[0].instances) for r in allocator.reports]
    assert [n for i, n in enumerate(seen) if i == 0 or n != seen[i - 1]] == [0, 1, 2, 3]
    early = [r.applied_generation for r in allocator.reports if len(r.gpus[0].instances) < 3]
    assert max(early) < allocator.desired.generation, "applied is said when all of it is"


async def test_a_lease_that_ends_is_cleaned_up_once_it_is_idle(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent(report_interval_s=0.2)
    (gpu,) = agent.node.gpu_uuids()
    wanted = want(gpu)
    await allocator.want(instances=(wanted,))
    device = (await allocator.settled()).gpus[0].instances[0].mig_uuid
    agent.node.set_processes(device, 1)
    await allocator.want(instances=(), destroy=(gone(wanted),))
    report = await allocator.settled()
    assert report.gpus[0].instances[0].processes == 1
    await allocator.called(4)
    assert len(allocator.reports[-1].gpus[0].instances) == 1
    agent.node.set_processes(device, 0)
    await allocator.until(lambda r: r.gpus[0].instances == ())


async def test_foreign_instances_stay(allocator: Allocator, start_agent: StartAgent) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    (gpu,) = node.gpu_uuids()
    (foreign,) = node.cut(gpu, [ProfileName(3, 40)])
    await start_agent(node=node)
    await allocator.want(instances=(want(gpu, 5), want(gpu, 1, lease="l2")))
    report: NodeReport = await allocator.settled()
    assert starts(report.gpus[0]) == [0, 5]
    (failure,) = report.failures
    assert (failure.lease_id, failure.gpu_uuid) == ("l2", gpu)
    assert "3g.40gb at 0:4) is in the way" in failure.reason
    assert node.instances(gpu)[1].mig_uuid == foreign.mig_uuid


async def test_a_step_that_fails_is_told_and_tried_again(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent()
    (gpu,) = agent.node.gpu_uuids()
    agent.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE, ErrorKind.INSUFFICIENT_RESOURCES)
    await allocator.want(instances=(want(gpu), want(gpu, 1, lease="l2")))
    report: NodeReport = await allocator.settled()
    assert [f.lease_id for f in report.failures] == ["l1"]
    assert "told to fail" in report.failures[0].reason
    assert starts(report.gpus[0]) == [1], "the other one is made all the same"
    report = await allocator.until(lambda r: starts(r.gpus[0]) == [0, 1] and not r.failures)
    assert report.applied_generation == allocator.desired.generation


async def test_a_failure_is_forgotten_with_what_it_was_about(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent()
    (gpu,) = agent.node.gpu_uuids()
    agent.node.fail_next(Verb.CREATE_GPU_INSTANCE, times=1000)
    await allocator.want(instances=(want(gpu),))
    assert (await allocator.settled()).failures
    await allocator.want(instances=())
    assert not (await allocator.settled()).failures
    assert all(not r.failures for r in allocator.reports if r.applied_generation == allocator.desired.generation)


async def test_a_half_made_instance_is_removed_and_made_again(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent()
    (gpu,) = agent.node.gpu_uuids()
    agent.node.fail_next(Verb.CREATE_COMPUTE_INSTANCE)
    agent.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE)
    await allocator.want(instances=(want(gpu),))
    report: NodeReport = await allocator.until(lambda r: any(i.mig_uuid is None for i in r.gpus[0].instances))
    assert report.gpus[0].instances[0].processes == 0
    await allocator.until(lambda r: starts(r.gpus[0]) == [0])


async def test_what_a_monitor_holds_open_is_told_and_tried_until_it_is_gone(
    allocator: Allocator, start_agent: StartAgent
) -> None:
    agent = await start_agent(report_interval_s=0.2)
    (gpu,) = agent.node.gpu_uuids()
    old = want(gpu)
    await allocator.want(instances=(old,))
    await allocator.settled()
    agent.node.fail_next(Verb.DESTROY_GPU_INSTANCE, ErrorKind.DEVICE_IN_USE, times=3)
    await allocator.want(instances=(want(gpu, 1, lease="l2"),), destroy=(gone(old),))
    report: NodeReport = await allocator.settled()
    (stuck,) = report.failures
    assert (stuck.lease_id, stuck.step.startswith("destroy instance")) == (None, True)
    assert {i.start: i.mig_uuid is None for i in report.gpus[0].instances} == {0: True, 1: False}
    report = await allocator.until(lambda r: not r.failures and len(r.gpus[0].instances) == 1)
    assert starts(report.gpus[0]) == [1]


async def test_a_gpu_is_leased_whole_and_cut_again(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent("h100-80gb")
    (gpu,) = agent.node.gpu_uuids()
    await allocator.want(instances=(want(gpu),))
    assert (await allocator.settled()).gpus[0].mig_enabled
    await allocator.want(instances=(), destroy=(gone(want(gpu)),), whole=(DesiredWhole(lease_id="w", gpu_uuid=gpu),))
    report: NodeReport = await allocator.settled()
    assert (report.gpus[0].mig_enabled, report.gpus[0].instances, report.failures) == (False, (), ())
    assert len(report.gpus[0].profiles) == 7
    agent.node.set_processes(gpu, 2)
    await allocator.want(whole=(), destroy=())
    await allocator.want(instances=(want(gpu),))
    report = await allocator.settled()
    assert "A process runs on the uncut GPU" in report.failures[0].reason
    assert report.gpus[0].processes == 2
    agent.node.set_processes(gpu, 0)
    await allocator.until(lambda r: starts(r.gpus[0]) == [0])


async def test_profiles_of_an_old_driver_are_remembered_while_mig_is_off(
    allocator: Allocator, start_agent: StartAgent
) -> None:
    agent = await start_agent(report_interval_s=0.2)
    await allocator.settled()
    agent.node.hide_profiles_without_mig()
    await allocator.called(4)
    assert len(allocator.reports[-1].gpus[0].profiles) == 7


async def test_one_bad_gpu_spoils_only_itself(allocator: Allocator, start_agent: StartAgent, gpu_of: GPUOf) -> None:
    agent = await start_agent("a100-80gb", "a100-80gb")
    bad, good = agent.node.gpu_uuids()
    await allocator.want(instances=(want(bad),))
    await allocator.settled()
    agent.node.lose(bad)
    await allocator.want(instances=(want(bad), want(bad, 1, lease="l2"), want(good, lease="l3")))
    report: NodeReport = await allocator.settled()
    assert gpu_of(report, bad).health is Health.BAD
    assert "fell off the bus" in gpu_of(report, bad).health_reason
    assert (gpu_of(report, bad).instances, gpu_of(report, bad).processes) == ((), None)
    assert starts(gpu_of(report, good)) == [0]
    assert {f.lease_id for f in report.failures} == {"l1", "l2"}


@pytest.mark.parametrize("verb", [Verb.LIST_PROFILES, Verb.LIST_INSTANCES], ids=str)
async def test_a_gpu_is_reported_whole_or_bad(allocator: Allocator, start_agent: StartAgent, verb: Verb) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    node.cut(node.gpu_uuids()[0], [ProfileName(1, 10)])
    node.fail_next(verb)
    await start_agent(node=node, report_interval_s=0.2)
    await allocator.until(lambda r: r.gpus[0].health is Health.OK and starts(r.gpus[0]) == [0])
    assert allocator.reports[0].gpus[0].health is Health.BAD
    assert allocator.reports[0].gpus[0].instances == ()


async def test_processes_that_cannot_be_read_are_unknown(allocator: Allocator, start_agent: StartAgent) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    (gpu,) = node.gpu_uuids()
    (made,) = node.cut(gpu, [ProfileName(1, 10)])
    node.set_processes(str(made.mig_uuid), None)
    await start_agent(node=node)
    start = made.placement.start
    await allocator.want(destroy=(gone(want(gpu, start)),))
    report: NodeReport = await allocator.settled()
    assert report.gpus[0].health is Health.OK
    assert report.gpus[0].instances[0].processes is None
    assert len(node.instances(gpu)) == 1


async def test_a_static_node_is_read_and_not_touched(allocator: Allocator, start_agent: StartAgent) -> None:
    node = SimulatedNode("node-a", ["a100-80gb"])
    (gpu,) = node.gpu_uuids()
    (made,) = node.cut(gpu, [ProfileName(3, 40)])
    await start_agent(node=node, dynamic=False)
    start = made.placement.start
    await allocator.want(
        instances=(want(gpu, 5),),
        destroy=(gone(want(gpu, start, profile=THREE, size=4)),),
        whole=(DesiredWhole(lease_id="w", gpu_uuid=gpu),),
    )
    report: NodeReport = await allocator.settled()
    assert not report.gpus[0].dynamic
    assert starts(report.gpus[0]) == [start]
    assert {f.lease_id for f in report.failures} == {"l1", "w"}
    assert node.instances(gpu)[0].mig_uuid == made.mig_uuid


async def test_while_the_allocator_is_away_nothing_is_touched(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent(report_interval_s=0.2)
    (gpu,) = agent.node.gpu_uuids()
    await allocator.want(instances=(want(gpu),))
    await allocator.settled()
    allocator.away = True
    await allocator.want(instances=(), destroy=(gone(want(gpu)),))
    await allocator.called(3)
    assert len(agent.node.instances(gpu)) == 1
    allocator.away = False
    await allocator.until(lambda r: r.gpus[0].instances == ())


async def test_a_change_while_a_step_waits_is_heeded(allocator: Allocator, start_agent: StartAgent) -> None:
    """Between two steps the agent asks again: what is not wanted any more is not made."""
    held, go = threading.Event(), threading.Event()

    class Slow(FakeDriver):
        def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
            held.set()
            assert go.wait(15)
            return super().create(gpu_uuid, profile_id, start, size)

    node = SimulatedNode("node-a", ["a100-80gb"])
    (gpu,) = node.gpu_uuids()
    await start_agent(node=node, driver=Slow(node))
    await allocator.want(instances=(want(gpu), want(gpu, 1, lease="l2")))
    await asyncio.to_thread(held.wait, 15)
    await allocator.want(instances=(want(gpu),))
    go.set()
    report: NodeReport = await allocator.settled()
    assert starts(report.gpus[0]) == [0]
    assert all(len(r.gpus[0].instances) < 2 for r in allocator.reports)


async def test_a_refusal_is_no_reason_to_die(
    allocator: Allocator, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    allocator.refusal = Problem(status=403, code=ProblemCode.FORBIDDEN, title="No", detail="This token is for node-b.")
    agent = await start_agent()
    await allocator.called(2)
    assert "This token is for node-b." in caplog.text
    allocator.refusal = None
    await allocator.settled()
    assert not agent.task.done()


async def test_no_log_line_shows_the_token(
    allocator: Allocator, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await start_agent(token="a-wrong-and-secret-token")
    await allocator.called(2)
    assert "Who are you?" in caplog.text
    assert "a-wrong-and-secret-token" not in caplog.text


async def test_a_driver_without_answer_is_asked_again(allocator: Allocator, start_agent: StartAgent) -> None:
    class Moody(FakeDriver):
        moods = 2

        def list_gpus(self) -> tuple[GPUInfo, ...]:
            if self.moods:
                self.moods -= 1
                raise DriverError("The driver is being updated.")
            return super().list_gpus()

    node = SimulatedNode("node-a", ["a100-80gb"])
    await start_agent(node=node, driver=Moody(node))
    report: NodeReport = await allocator.settled()
    assert len(report.gpus) == 1


async def test_with_nothing_to_do_it_reports_and_waits(allocator: Allocator, start_agent: StartAgent) -> None:
    agent = await start_agent(report_interval_s=30)
    await allocator.settled()
    await allocator.called(0)
    before = agent.loop.rounds
    while not allocator.polls:
        await asyncio.sleep(0)
    assert allocator.polls == [30]
    assert agent.loop.rounds == before <= 2


async def test_cancelling_ends_after_the_step_that_runs(allocator: Allocator, start_agent: StartAgent) -> None:
    held, go = threading.Event(), threading.Event()
    closed: list[bool] = []

    class Slow(FakeDriver):
        def create(self, gpu_uuid: str, profile_id: int, start: int, size: int) -> Instance:
            held.set()
            assert go.wait(15)
            return super().create(gpu_uuid, profile_id, start, size)

        def close(self) -> None:
            closed.append(go.is_set())

    node = SimulatedNode("node-a", ["a100-80gb"])
    (gpu,) = node.gpu_uuids()
    agent = await start_agent(node=node, driver=Slow(node))
    await allocator.want(instances=(want(gpu), want(gpu, 1, lease="l2")))
    await asyncio.to_thread(held.wait, 15)
    stopping = asyncio.ensure_future(agent.stop())
    await asyncio.wait([agent.task])
    assert not closed
    go.set()
    await stopping
    assert closed == [True], "the session ends after the step, not under it"
    (made,) = node.instances(gpu)
    assert (made.placement.start, made.mig_uuid is not None) == (0, True)


async def test_a_restarted_agent_finds_everything_and_does_nothing(
    allocator: Allocator, start_agent: StartAgent, state_file: Path
) -> None:
    first = await start_agent(node=SimulatedNode("node-a", ["h100-80gb"], state_file=state_file))
    (gpu,) = first.node.gpu_uuids()
    await allocator.want(instances=(want(gpu), want(gpu, 5, lease="l2")))
    before = (await allocator.settled()).gpus[0].instances
    await first.stop()
    allocator.reports.clear()
    second = await start_agent(node=SimulatedNode("node-a", ["h100-80gb"], state_file=state_file))
    report: NodeReport = await allocator.settled()
    assert allocator.reports[0].applied_generation == 0
    assert all(r.gpus[0].instances == before for r in allocator.reports)
    assert report.boot_id == second.node.boot_id()


def test_pauses_grow_up_to_a_bound_and_are_scattered() -> None:
    steady = BackOff(4, chance=lambda: 0.0)
    assert [steady.pause() for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]
    steady.reset()
    assert steady.pause() == 0.5
    pauses = {BackOff(4, chance=random.Random(seed).random).pause() for seed in range(20)}
    assert len(pauses) > 10
    assert all(0.25 <= p <= 0.5 for p in pauses)
