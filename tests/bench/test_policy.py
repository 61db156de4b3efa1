"""What one placement decision costs, by policy and number of GPUs: `make bench` prints them side by side.

`scan` is what the allocator does, which derives its fleet anew in every transaction: one look at each GPU. `index` is a fleet that
is kept: a decision and the start that follows from it. Between two of them somebody stops. `priced` stands for `auto` too: both look a
worth up in a table.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from mig_spawner.domain.fleet import Decision, GPUState
from mig_spawner.domain.gpu import GPU, Layout, Profile, layout_of
from mig_spawner.domain.policy import POLICIES, Index, choose
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.testing.gpu import find_model

SMALL = SliceRequest(ProfileName(1, 10))
COUNTS = [10, 100, 1000, 10_000]
MEASURED = ["first-fit", "best-fit", "min-fragmentation", "share-weighted", "priced"]

Instances = list[tuple[Profile, int]]


@cache
def half_full(count: int) -> tuple[tuple[GPU, Instances], ...]:
    """GPUs of one model, each with a random half of its memory slices taken; the same for every run."""
    dice = random.Random(7)
    model = find_model("a100-80gb")
    fleet = []
    for number in range(count):
        gpu = model.gpu(f"GPU-{number}")
        layout, instances = Layout(gpu), []
        while layout.taken < gpu.grid // 2:
            profile = dice.choice([p for p in gpu.profiles if p.size <= 2 and layout.starts(p)])
            instances.append((profile, dice.choice(layout.starts(profile))))
            layout = layout.with_instance(*instances[-1])
        fleet.append((gpu, instances))
    return tuple(fleet)


def states(count: int) -> list[GPUState]:
    return [GPUState("node", gpu, layout_of(gpu, instances)) for gpu, instances in half_full(count)]


class Hub:
    """A kept fleet on which servers come and go, as many in as out."""

    def __init__(self, count: int, policy: str) -> None:
        self.dice = random.Random(11)
        self.states = {state.gpu.gpu_uuid: state for state in states(count)}
        self.instances = {gpu.gpu_uuid: list(instances) for gpu, instances in half_full(count)}
        self.running = [(uuid, place) for uuid, instances in self.instances.items() for place in instances]
        self.index = Index(self.states.values(), POLICIES[policy].ranking())

    def stop_one(self) -> None:
        number = self.dice.randrange(len(self.running))
        self.running[number], self.running[-1] = self.running[-1], self.running[number]
        uuid, place = self.running.pop()
        self.instances[uuid].remove(place)
        self.put(uuid, layout_of(self.states[uuid].gpu, self.instances[uuid]))

    def start_one(self) -> Decision:
        decision = self.index.choose(SMALL)
        assert decision is not None
        assert decision.profile is not None
        uuid, place = decision.placement.gpu_uuid, (decision.profile, decision.placement.start)
        self.put(uuid, self.states[uuid].layout.with_instance(*place))
        self.instances[uuid].append(place)
        self.running.append((uuid, place))
        return decision

    def put(self, uuid: str, layout: Layout) -> None:
        self.states[uuid] = GPUState("node", layout.gpu, layout)
        self.index.put(self.states[uuid])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("policy", MEASURED)
def test_scan(benchmark: Any, policy: str, count: int) -> None:
    fleet, ranking = states(count), POLICIES[policy].ranking()
    assert benchmark.pedantic(choose, (SMALL, fleet, ranking), rounds=10, warmup_rounds=1).cut


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("policy", MEASURED)
def test_index(benchmark: Any, policy: str, count: int) -> None:
    hub = Hub(count, policy)
    assert benchmark.pedantic(hub.start_one, setup=hub.stop_one, rounds=2000, warmup_rounds=500).cut
