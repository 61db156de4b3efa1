"""A running agent cuts partitions anew when it is told to: those that are named and idle, all of it or nothing, on every driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.agent.inventory import Observer
from mig_spawner.agent.keeper import Keeper
from mig_spawner.domain.layout import NamedLayout, read
from mig_spawner.testing.gpu import Verb
from mig_spawner.wire.node import CUT_ANEW, DesiredLayout, DesiredPlace, GPUDocument, Health

MakeRig = Callable[..., Any]
THREE, TWO, ONE = 9, 14, 19


def declared() -> NamedLayout:
    instances = ["3g.40gb@4", "1g.10gb@0", "1g.10gb@1", "1g.10gb@2", "1g.10gb@3"]
    parts = [{"gpus": "all", "mig": True, "instances": instances}]
    return read({"layouts": {"mine": parts}}, load=str).declaration.layouts["mine"]


class Bench:
    """A keeper of one GPU; with a layout it has been made."""

    def __init__(self, rig: Any, layout: NamedLayout | None) -> None:
        self.rig = rig
        self.gpu_uuid = rig.uuids[0]
        self.keeper = Keeper(rig.driver, Observer(rig.driver, dynamic=layout is None), layout)
        if layout is None:
            rig.ready()
        self.look()

    def look(self) -> GPUDocument:
        return next(gpu for gpu in self.keeper.observe() if gpu.gpu_uuid == self.gpu_uuid)

    def want(self, *, remove: list[tuple[int, int, int]], make: list[tuple[int, int, int]]) -> DesiredLayout:
        layout = DesiredLayout(gpu_uuid=self.gpu_uuid, remove=_places(remove), make=_places(make))
        self.keeper.want([layout])
        return layout


def _places(places: list[tuple[int, int, int]]) -> tuple[DesiredPlace, ...]:
    return tuple(DesiredPlace(profile_id=profile, start=start, size=size) for profile, start, size in places)


def there(gpu: GPUDocument) -> dict[tuple[int, int], str | None]:
    return {(i.profile_id, i.start): i.mig_uuid for i in gpu.instances}


AS_DECLARED = {(THREE, 4), (ONE, 0), (ONE, 1), (ONE, 2), (ONE, 3)}


def test_what_is_named_is_cut_anew_and_back_and_neighbours_stay(make_rig: MakeRig) -> None:
    bench = Bench(make_rig("a100-80gb"), declared())
    before = there(bench.look())
    assert before.keys() == AS_DECLARED
    wanted = bench.want(remove=[(ONE, 0, 1), (ONE, 1, 1)], make=[(TWO, 0, 2)])
    seen = bench.look()
    assert there(seen).keys() == {(THREE, 4), (TWO, 0), (ONE, 2), (ONE, 3)}
    assert (seen.health, seen.reshapable, bench.keeper.failures) == (Health.OK, True, ())
    kept = (THREE, 4), (ONE, 2), (ONE, 3)
    assert [there(seen)[place] for place in kept] == [before[place] for place in kept]
    assert there(bench.look()) == there(seen)
    bench.keeper.want([wanted.model_copy(update={"remove": wanted.make, "make": wanted.remove})])
    assert there(bench.look()).keys() == AS_DECLARED
    bench.keeper.want(())
    assert bench.look().health is Health.OK


def test_without_the_allocators_word_what_was_cut_anew_is_not_as_declared(make_rig: MakeRig) -> None:
    bench = Bench(make_rig("a100-80gb"), declared())
    bench.want(remove=[(ONE, 0, 1), (ONE, 1, 1)], make=[(TWO, 0, 2)])
    bench.look()
    bench.keeper.want(())
    seen = bench.look()
    assert (seen.health, seen.reshapable) == (Health.DRAINING, True)
    assert (TWO, 0) in there(seen)


@pytest.mark.parametrize("processes", [1, None])
def test_what_is_used_or_may_be_stops_all_of_it(make_rig: MakeRig, processes: int | None) -> None:
    bench = Bench(make_rig("a100-80gb"), declared())
    before = there(bench.look())
    bench.rig.node.set_processes(before[ONE, 1], processes)
    bench.want(remove=[(ONE, 0, 1), (ONE, 1, 1)], make=[(TWO, 0, 2)])
    assert there(bench.look()) == before
    (failure,) = bench.keeper.failures
    assert (failure.gpu_uuid, failure.step, failure.lease_id) == (bench.gpu_uuid, CUT_ANEW, None)
    assert "is in the way, and" in failure.reason
    bench.rig.node.set_processes(before[ONE, 1], 0)
    assert (TWO, 0) in there(bench.look())
    assert bench.keeper.failures == ()


def test_what_is_not_named_is_never_destroyed(make_rig: MakeRig) -> None:
    bench = Bench(make_rig("a100-80gb"), declared())
    before = there(bench.look())
    bench.want(remove=[(ONE, 0, 1)], make=[(TWO, 0, 2)])
    assert there(bench.look()) == before
    assert [failure.step for failure in bench.keeper.failures] == [CUT_ANEW]


def test_what_fails_half_way_is_put_back_and_not_tried_in_a_circle(make_rig: MakeRig) -> None:
    bench = Bench(make_rig("a100-80gb"), declared())
    wanted = bench.want(remove=[(ONE, 0, 1), (ONE, 1, 1)], make=[(TWO, 0, 2)])
    bench.rig.node.fail_next(Verb.CREATE_GPU_INSTANCE)
    assert there(bench.look()).keys() == AS_DECLARED
    first = bench.keeper.failures
    assert [failure.step for failure in first] == [CUT_ANEW]
    assert there(bench.look()).keys() == AS_DECLARED
    assert bench.keeper.failures == first
    bench.keeper.want(())
    assert bench.look().health is Health.OK
    bench.keeper.want([wanted])
    assert (TWO, 0) in there(bench.look())


def test_a_gpu_that_is_cut_on_demand_loses_what_is_left_over_only(make_rig: MakeRig) -> None:
    bench = Bench(make_rig("a100-80gb"), None)
    bench.rig.driver.create(bench.gpu_uuid, ONE, 0, 1)
    mine = bench.rig.driver.create(bench.gpu_uuid, ONE, 6, 1)
    assert bench.look().reshapable
    bench.want(remove=[(ONE, 0, 1)], make=[])
    assert there(bench.look()) == {(ONE, 6): mine.mig_uuid}


def test_a_gpu_that_is_not_there_is_told(make_rig: MakeRig) -> None:
    bench = Bench(make_rig("a100-80gb"), None)
    bench.keeper.want([DesiredLayout(gpu_uuid="GPU-of-another-node")])
    bench.look()
    assert [failure.gpu_uuid for failure in bench.keeper.failures] == ["GPU-of-another-node"]
