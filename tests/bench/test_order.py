"""The study's benchmark in a short form: which policy accepts more than which, by how much at least. No timings.

The long form is `mig-spawner simulate --scenario study --seeds 10`; `docs/placement.md` has its figures.
"""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from mig_spawner.planning.bound import Repack
from mig_spawner.planning.fleet import Group, dynamic, gpus_of
from mig_spawner.planning.scenario import scenario
from mig_spawner.planning.setup import ranking_for
from mig_spawner.planning.simulation import Course, run
from mig_spawner.planning.traffic import MIXES

GPUS = gpus_of([Group("a100-80gb", 40)])
SEEDS = (1, 2)
SPAN, REHEARSED = 30.0, 3000


@cache
def accepted(mix: str, policy: str) -> float:
    """The accepted part of the slice-time, on the same arrivals for every policy."""
    setting = scenario(f"steady-{mix}-1.1", GPUS, span=SPAN)
    assert setting.told is not None
    asked = got = 0.0
    for seed in SEEDS:
        trace = setting.arrivals(seed)
        if policy == "moved":
            a, b = Repack(GPUS).accepted(trace, warm_up=setting.warm_up)
            asked, got = asked + a, got + b
        else:
            course = Course(ranking_for(policy, GPUS, setting.told, rehearsed=REHEARSED), warm_up=setting.warm_up)
            (outcome,) = run(trace, dynamic(GPUS), course)
            asked, got = asked + outcome.asked_time, got + outcome.accepted_time
    return got / asked


@pytest.mark.parametrize(
    ("mix", "better", "worse", "by"),
    [
        pytest.param("uniform", "auto", "min-fragmentation", 0.005, id="all alike: AUTO before MFI"),
        pytest.param("uniform", "auto", "best-fit", 0.01, id="all alike: AUTO before best-fit"),
        pytest.param("uniform", "best-fit", "first-fit", 0.0, id="all alike: best-fit before first-fit"),
        pytest.param("notebook", "auto", "min-fragmentation", 0.015, id="notebooks: AUTO before MFI"),
        pytest.param("notebook", "auto", "share-weighted", 0.0, id="notebooks: AUTO before SW"),
        pytest.param("notebook", "share-weighted", "min-fragmentation", 0.005, id="notebooks: SW before MFI"),
        pytest.param("notebook", "auto", "expected-fragmentation", 0.02, id="notebooks: AUTO before FGD"),
        pytest.param("skew-small", "auto", "min-fragmentation", 0.02, id="many small ones: AUTO before MFI"),
        pytest.param("skew-small", "auto", "best-fit", 0.015, id="many small ones: AUTO before best-fit"),
        pytest.param("bimodal", "auto", "min-fragmentation", 0.005, id="small and large: AUTO before MFI"),
        pytest.param("bimodal", "min-fragmentation", "best-fit", 0.005, id="small and large: MFI before best-fit"),
        pytest.param("skew-big", "auto", "min-fragmentation", 0.005, id="many large ones: AUTO before MFI"),
        pytest.param("skew-big", "min-fragmentation", "best-fit", 0.01, id="many large ones: MFI before best-fit"),
        pytest.param("notebook", "moved", "auto", 0.005, id="notebooks: nobody does what moving could"),
    ],
)
def test_who_accepts_more(mix: str, better: str, worse: str, by: float) -> None:
    assert accepted(mix, better) - accepted(mix, worse) > by


def test_what_is_never_worse_than_mfi() -> None:
    """The default, on any mix; and over all of them it is better by a point and a half."""
    gains = [accepted(mix, "auto") - accepted(mix, "min-fragmentation") for mix in MIXES]
    assert min(gains) > 0
    assert mean(gains) > 0.015
