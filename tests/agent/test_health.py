"""How well a GPU is: the table, and what of it reaches the report."""

from __future__ import annotations

import pytest

from mig_spawner.agent.driver.base import Event, Recovery, Vitals
from mig_spawner.agent.driver.fake import FakeDriver
from mig_spawner.agent.health import QUIET_S, Record, by_counters
from mig_spawner.agent.inventory import Observer
from mig_spawner.domain.profile import ProfileName
from mig_spawner.testing.gpu import SimulatedNode
from mig_spawner.wire.node import Health

GPU = "GPU-a"
NOTHING = Vitals()


def judged(*xids: int, vitals: Vitals = NOTHING, after: float = 0, instance: int | None = None) -> tuple[Health, str]:
    record = Record()
    record.note([Event(GPU, xid, instance) for xid in xids], 100)
    record.note([Event("GPU-b", 79)], 100)
    verdict = record.judge(GPU, vitals, 100 + after)
    return verdict.health, verdict.reason


@pytest.mark.parametrize(
    ("xids", "health"),
    [
        pytest.param([], Health.OK, id="nothing"),
        pytest.param([13, 31, 43, 45, 68, 109], Health.OK, id="a person's program"),
        pytest.param([63, 92], Health.OK, id="what the counters say better"),
        pytest.param([7], Health.SUSPECT, id="unknown"),
        pytest.param([48], Health.DRAINING, id="memory error"),
        pytest.param([64], Health.DRAINING, id="row not replaced"),
        pytest.param([79], Health.BAD, id="off the bus"),
        pytest.param([79, 48, 7], Health.BAD, id="the worst counts"),
        pytest.param([7, 94], Health.DRAINING, id="known before unknown"),
    ],
)
def test_what_is_announced(xids: list[int], health: Health) -> None:
    seen, reason = judged(*xids)
    assert seen is health
    assert bool(reason) is (health is not Health.OK)


@pytest.mark.parametrize(
    ("vitals", "health", "words"),
    [
        pytest.param(Vitals(), Health.OK, "", id="nothing is counted"),
        pytest.param(Vitals(0, False, False, None), Health.OK, "", id="all well"),
        pytest.param(Vitals(memory_errors=2), Health.DRAINING, "2 memory errors could not be corrected", id="errors"),
        pytest.param(Vitals(remap_pending=True), Health.DRAINING, "waits to be replaced. Reset it", id="row waits"),
        pytest.param(
            Vitals(1, True, True),
            Health.DRAINING,
            "could not be replaced. Have it checked",
            id="row cannot be replaced",
        ),
        pytest.param(Vitals(mode_pending=True), Health.DRAINING, "goes on with its next reset", id="mode on waits"),
        pytest.param(Vitals(mode_pending=False), Health.DRAINING, "goes off with its next reset", id="mode off waits"),
    ],
)
def test_what_is_counted(vitals: Vitals, health: Health, words: str) -> None:
    verdict = by_counters(vitals)
    assert verdict.health is health
    assert words in verdict.reason


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (Recovery.RESET, "needs a reset. Reset it"),
        (Recovery.BOOT, "the node needs a boot"),
        (Recovery.OTHER, "nvidia-smi"),
    ],
)
def test_what_is_needed_is_said_where_no_cause_is_known(need: Recovery, words: str) -> None:
    health, reason = judged(vitals=Vitals(recovery=need))
    assert health is Health.DRAINING
    assert words in reason
    assert judged(119, vitals=Vitals(recovery=need))[1].startswith("XID 119")
    assert judged(79, vitals=Vitals(recovery=need))[0] is Health.BAD


def test_a_suspect_gpu_is_well_again_when_it_was_quiet_and_a_draining_one_is_not() -> None:
    assert judged(7, after=QUIET_S - 1)[0] is Health.SUSPECT
    assert judged(7, after=QUIET_S)[0] is Health.OK
    assert judged(48, after=100 * QUIET_S)[0] is Health.DRAINING


def test_the_cause_says_where() -> None:
    assert judged(94, instance=7)[1].startswith("XID 94 on GPU instance 7: a memory error that was contained.")


def test_a_sick_gpu_is_reported_whole_with_the_cause_and_alone() -> None:
    node, now = SimulatedNode("node-a", ["a100-80gb", "a100-80gb"]), [0.0]
    sick, _ = node.gpu_uuids()
    (made,) = node.cut(sick, [ProfileName(1, 10)])
    observer = Observer(FakeDriver(node), dynamic=True, clock=lambda: now[0])
    assert [g.health for g in observer.observe()] == [Health.OK, Health.OK]
    node.announce(sick, 7)
    first, second = observer.observe()
    assert (first.health, second.health) == (Health.SUSPECT, Health.OK)
    assert "XID 7" in first.health_reason
    assert [i.mig_uuid for i in first.instances] == [made.mig_uuid]
    now[0] += QUIET_S
    assert observer.observe()[0].health is Health.OK
    node.wear(sick, remap_pending=True)
    assert observer.observe()[0].health is Health.DRAINING
