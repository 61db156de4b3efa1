"""What one placement decision costs, by policy and number of GPUs: `make bench` prints them side by side."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.gpu import Layout
from mig_spawner.domain.policy import POLICIES, choose
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import SliceRequest
from mig_spawner.testing.gpu import find_model

SMALL = SliceRequest(ProfileName(1, 10))


def half_full(count: int) -> list[GPUState]:
    """GPUs of one model, each with a random half of its memory slices taken; the same for every run."""
    dice = random.Random(7)
    model = find_model("a100-80gb")
    fleet = []
    for number in range(count):
        gpu = model.gpu(f"GPU-{number}")
        layout = Layout(gpu)
        while layout.taken < gpu.grid // 2:
            profile = dice.choice([p for p in gpu.profiles if p.size <= 2 and layout.starts(p)])
            layout = layout.with_instance(profile, dice.choice(layout.starts(profile)))
        fleet.append(GPUState("node", gpu, layout))
    return fleet


@pytest.mark.parametrize("count", [10, 100, 1000])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_decision(benchmark: Callable[..., Any], policy: str, count: int) -> None:
    fleet = half_full(count)
    assert benchmark(choose, SMALL, fleet, POLICIES[policy]) is not None
