"""From observed to desired: a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mig_spawner.agent.plan import plan
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import (
    DesiredInstance,
    DesiredNode,
    DesiredWhole,
    DestroyableInstance,
    GPUDocument,
    Health,
    InstanceDocument,
    ProfileDocument,
)

A, B = "GPU-a", "GPU-b"
ONE, TWO, THREE, FOUR = 19, 14, 9, 5
SIZE = {ONE: 1, TWO: 2, THREE: 4, FOUR: 4}
PROFILES = tuple(
    ProfileDocument(
        name=str(p.name),
        profile_id=p.profile_id,
        size=p.size,
        starts=p.starts,
        compute_slices=p.compute_slices,
        memory_mib=p.memory_mib,
        multiprocessors=p.multiprocessors,
    )
    for p in find_model("a100-80gb").gpu("x").profiles
)


def there(
    profile: int, start: int, *, processes: int | None = 0, half: bool = False, number: int = 0
) -> InstanceDocument:
    """An instance on the GPU."""
    return InstanceDocument(
        gpu_instance_id=number or 10 * start + profile,
        profile_id=profile,
        profile=None,
        start=start,
        size=SIZE[profile],
        mig_uuid=None if half else f"MIG-{start}",
        processes=processes,
    )


def gpu(*instances: InstanceDocument, uuid: str = A, **change: Any) -> GPUDocument:
    values = {"mig_enabled": True, "dynamic": True, "profiles": PROFILES, **change}
    return GPUDocument(
        gpu_uuid=uuid, model="A100", memory_mib=81920, multiprocessors=108, instances=instances, **values
    )


def want(profile: int, start: int, lease: str = "l1", uuid: str = A) -> DesiredInstance:
    return DesiredInstance(lease_id=lease, gpu_uuid=uuid, profile_id=profile, start=start, size=SIZE[profile])


def whole(lease: str = "w1", uuid: str = A) -> DesiredWhole:
    return DesiredWhole(lease_id=lease, gpu_uuid=uuid)


def gone(profile: int, start: int, uuid: str = A) -> DestroyableInstance:
    return DestroyableInstance(gpu_uuid=uuid, profile_id=profile, start=start, size=SIZE[profile])


def sick(health: Health, *instances: InstanceDocument) -> GPUDocument:
    return gpu(*instances, health=health, health_reason="XID 48.")


def node(*items: DesiredInstance | DesiredWhole | DestroyableInstance) -> DesiredNode:
    return DesiredNode(
        generation=7,
        instances=tuple(i for i in items if isinstance(i, DesiredInstance)),
        whole=tuple(i for i in items if isinstance(i, DesiredWhole)),
        destroy=tuple(i for i in items if isinstance(i, DestroyableInstance)),
    )


@pytest.mark.parametrize(
    ("observed", "desired", "steps"),
    [
        pytest.param([], [], [], id="nothing anywhere"),
        pytest.param([gpu()], [], [], id="nothing to do"),
        pytest.param([gpu(there(ONE, 0))], [], [], id="foreign instances are left alone"),
        pytest.param([gpu(there(ONE, 0, half=True))], [], [], id="foreign half-made ones too"),
        pytest.param([gpu()], [want(ONE, 0)], ["create profile 19 at 0:1"], id="create"),
        pytest.param([gpu(there(ONE, 0))], [want(ONE, 0)], [], id="it is there"),
        pytest.param([gpu(there(ONE, 0, processes=4))], [want(ONE, 0)], [], id="it is there and used"),
        pytest.param(
            [gpu()],
            [want(ONE, 0), want(TWO, 2, "l2")],
            ["create profile 19 at 0:1", "create profile 14 at 2:2"],
            id="create two",
        ),
        pytest.param([gpu(there(ONE, 0))], [gone(ONE, 0)], ["destroy instance 19 at 0:1"], id="destroy"),
        pytest.param([gpu()], [gone(ONE, 0)], [], id="destroyed already"),
        pytest.param([gpu(there(ONE, 0, processes=1))], [gone(ONE, 0)], [], id="busy stays"),
        pytest.param([gpu(there(ONE, 0, processes=None))], [gone(ONE, 0)], [], id="unknown is busy"),
        pytest.param([gpu(there(TWO, 0))], [gone(ONE, 0)], [], id="another profile there now"),
        pytest.param(
            [gpu(there(ONE, 0, half=True))], [gone(ONE, 0)], ["destroy instance 19 at 0:1"], id="destroy half-made"
        ),
        pytest.param([sick(Health.DRAINING, there(ONE, 0))], [want(ONE, 0)], [], id="what runs on a sick GPU stays"),
        pytest.param(
            [sick(Health.DRAINING, there(ONE, 0), there(TWO, 2))],
            [gone(ONE, 0)],
            ["destroy instance 19 at 0:1"],
            id="a draining GPU is emptied",
        ),
        pytest.param([sick(Health.SUSPECT, there(ONE, 0))], [gone(ONE, 0)], [], id="a suspect one is left as it is"),
        pytest.param([gpu(there(ONE, 0))], [gone(ONE, 0), want(ONE, 0)], [], id="what is desired as well stays"),
        pytest.param(
            [gpu(there(ONE, 0))],
            [want(FOUR, 0), gone(ONE, 0)],
            ["destroy instance 19 at 0:1", "create profile 5 at 0:4"],
            id="destroys before creates",
        ),
        pytest.param(
            [gpu(there(THREE, 0, half=True))],
            [want(THREE, 0)],
            ["destroy instance 9 at 0:4", "create profile 9 at 0:4"],
            id="half-made where one is desired",
        ),
        pytest.param(
            [gpu(mig_enabled=False)],
            [want(ONE, 0)],
            ["switch MIG mode on", "create profile 19 at 0:1"],
            id="mode on first",
        ),
        pytest.param([gpu(mig_enabled=False)], [], [], id="mode is not switched for nothing"),
        pytest.param([gpu()], [whole()], ["switch MIG mode off"], id="whole"),
        pytest.param([gpu(mig_enabled=False)], [whole()], [], id="whole already"),
        pytest.param([gpu(mig_enabled=False, processes=3)], [whole()], [], id="whole and used"),
        pytest.param([gpu(mig_enabled=None, profiles=())], [whole()], [], id="whole, no MIG mode"),
        pytest.param(
            [gpu(there(ONE, 0))],
            [whole(), gone(ONE, 0)],
            ["destroy instance 19 at 0:1", "switch MIG mode off"],
            id="whole after its remains",
        ),
        pytest.param([gpu(there(ONE, 0), dynamic=False)], [gone(ONE, 0)], [], id="a static GPU is not touched"),
        pytest.param([gpu(there(ONE, 0), dynamic=False)], [want(ONE, 0)], [], id="a standing partition serves"),
        pytest.param(
            [gpu(there(ONE, 0), health=Health.BAD), gpu(uuid=B)],
            [gone(ONE, 0), want(ONE, 1, "l2", B)],
            ["create profile 19 at 1:1"],
            id="a bad GPU spoils only itself",
        ),
        pytest.param(
            [gpu(there(ONE, 3)), gpu(there(TWO, 0, number=5), uuid=B)],
            [want(ONE, 0), want(TWO, 2, "l2", B), gone(ONE, 3), gone(TWO, 0, B)],
            [
                "destroy instance 49 at 3:1",
                "destroy instance 5 at 0:2",
                "create profile 19 at 0:1",
                "create profile 14 at 2:2",
            ],
            id="over all GPUs destroys come first",
        ),
    ],
)
def test_steps(observed: Sequence[GPUDocument], desired: Sequence[Any], steps: list[str]) -> None:
    agenda = plan(observed, node(*desired))
    assert [str(s) for s in agenda.steps] == steps
    assert agenda.failures == []


@pytest.mark.parametrize(
    ("observed", "desired", "steps", "lease", "reason"),
    [
        pytest.param(
            [gpu(there(ONE, 2))],
            [want(THREE, 0)],
            [],
            "l1",
            "GPU instance 39 (profile 19 at 2:1) is in",
            id="foreign in the way",
        ),
        pytest.param(
            [gpu(there(ONE, 2, half=True))],
            [want(THREE, 0)],
            [],
            "l1",
            "is in the way",
            id="foreign half-made in the way",
        ),
        pytest.param(
            [gpu(there(TWO, 0))],
            [want(THREE, 0), want(ONE, 6, "l2")],
            ["create profile 19 at 6:1"],
            "l1",
            "is in the way",
            id="the other is made",
        ),
        pytest.param(
            [gpu(there(ONE, 0, processes=1))],
            [gone(ONE, 0), want(FOUR, 0)],
            [],
            "l1",
            "is in the way",
            id="busy remains in the way",
        ),
        pytest.param(
            [gpu()],
            [want(THREE, 0), want(FOUR, 0, "l2")],
            ["create profile 9 at 0:4"],
            "l2",
            "the instance of lease l1 is in the way",
            id="two desired at one place",
        ),
        pytest.param([gpu()], [want(ONE, 7)], [], "l1", "has no profile 19 at 7:1", id="no such start"),
        pytest.param([gpu(profiles=())], [want(ONE, 0)], [], "l1", "has no profile 19", id="no such profile"),
        pytest.param([gpu(mig_enabled=None, profiles=())], [want(ONE, 0)], [], "l1", "no MIG mode", id="no MIG mode"),
        pytest.param([gpu(dynamic=False)], [want(ONE, 0)], [], "l1", "cut by its admin", id="static"),
        pytest.param([gpu(dynamic=False)], [whole()], [], "w1", "cut by its admin", id="static, whole"),
        pytest.param(
            [gpu(mig_enabled=False, processes=1)], [want(ONE, 0)], [], "l1", "A process runs", id="uncut and busy"
        ),
        pytest.param(
            [gpu(mig_enabled=False, processes=None)], [want(ONE, 0)], [], "l1", "not known", id="uncut, unknown"
        ),
        pytest.param([gpu(processes=None)], [whole()], [], "w1", "not known", id="whole, unknown"),
        pytest.param([gpu(there(ONE, 0))], [whole()], [], "w1", "is still there", id="whole, foreign instance"),
        pytest.param(
            [gpu(there(ONE, 0, processes=1))],
            [whole(), gone(ONE, 0)],
            [],
            "w1",
            "still there",
            id="whole, busy remains",
        ),
        pytest.param([gpu(mig_enabled=False)], [whole(), want(ONE, 0)], [], "l1", "leased whole", id="whole and cut"),
        pytest.param([gpu()], [want(ONE, 0, uuid="GPU-x")], [], "l1", "This node has no GPU GPU-x", id="no such GPU"),
        pytest.param(
            [gpu(health=Health.BAD, health_reason="It fell off the bus.")],
            [want(ONE, 0)],
            [],
            "l1",
            "is bad: It fell off the bus.",
            id="bad GPU",
        ),
        pytest.param([gpu(health=Health.BAD, mig_enabled=None)], [whole()], [], "w1", "is bad", id="bad GPU, whole"),
        pytest.param(
            [sick(Health.DRAINING)],
            [want(ONE, 0)],
            [],
            "l1",
            "is draining: XID 48.",
            id="nothing new on a draining GPU",
        ),
        pytest.param([sick(Health.SUSPECT)], [want(ONE, 0)], [], "l1", "is suspect", id="nor on a suspect one"),
    ],
)
def test_what_cannot_be_done_is_said_and_not_tried(
    observed: Sequence[GPUDocument], desired: Sequence[Any], steps: list[str], lease: str, reason: str
) -> None:
    agenda = plan(observed, node(*desired))
    assert [str(s) for s in agenda.steps] == steps
    assert [f.lease_id for f in agenda.failures] == [lease]
    assert reason in agenda.failures[0].reason
    assert agenda.failures[0].step


def test_an_instance_an_admin_cut_further_is_nobodys_half_made_one() -> None:
    cut_further = there(THREE, 0, half=True, processes=None)
    agenda = plan([gpu(cut_further)], node(want(THREE, 0), gone(THREE, 0)))
    assert agenda.steps == []
    assert "in the way" in agenda.failures[0].reason
