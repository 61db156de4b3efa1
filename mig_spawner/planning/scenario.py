"""The named settings of our study, and settings made of somebody's own trace. The same name and seed give the same arrivals.

steady-MIX-LOAD             people come and go; load 1.0 is what would just fit
saturation-MIX-DEMAND       people come and stay, until so much of the memory slices was asked for (the MFI paper)
held-out-NUMBER-LOAD        steady, on one of twenty mixes that nothing was ever tuned on
mis-specified-MIX-as-MIX    steady at load 1.0, while policies are told another mix
moving-LOAD                 steady, of notebooks first, then of large requests, then of all alike
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy import Demand
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.fleet import Group, plain
from mig_spawner.planning.trace import Trace
from mig_spawner.planning.traffic import HOUR, MIXES, Filling, Mix, Steady, fits, held_out

LOADS: Final = (0.7, 0.8, 0.9, 1.0, 1.1, 1.3)
DEMANDS: Final = (0.5, 0.7, 0.85, 1.0, 1.2)
HELD_OUT: Final = range(1, 21)
HELD_OUT_LOADS: Final = (0.9, 1.05)
MOVING: Final = ("notebook", "skew-big", "uniform")
GPUS: Final = (Group("a100-80gb", 100),)
SPAN: Final = 100.0
WARM_UP: Final = 0.4
"""Of the span: sessions of which one in a hundred lasts ten times the mean take long to add up."""

STUDY: Final = (
    *(f"steady-{mix}-{load}" for mix in MIXES for load in (0.9, 1.0)),
    "saturation-uniform-1.0",
    "moving-1.0",
)
"""Those of the published table; `study` names them all."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A setting.

    Attributes:
        arrivals: by seed.
        told: the demand that policies are told; None for that of the arrivals themselves.
        warm_up: seconds at the beginning that do not count.
        end: seconds; None for the last arrival.
        seeded: whether another seed gives other arrivals.
    """

    name: str
    gpus: Sequence[GPU]
    arrivals: Callable[[int], Trace]
    told: Demand | None = None
    warm_up: float = 0.0
    end: float | None = None
    seeded: bool = True


def list_scenarios() -> list[str]:
    """The names of all."""
    return [
        *(f"steady-{mix}-{load}" for mix in MIXES for load in LOADS),
        *(f"saturation-{mix}-{demand}" for mix in MIXES for demand in DEMANDS),
        *(f"held-out-{number}-{load}" for number in HELD_OUT for load in HELD_OUT_LOADS),
        *(f"mis-specified-{mix}-as-{other}" for mix in MIXES for other in MIXES if mix != other),
        "moving-1.0",
    ]


def scenario(name: str, gpus: Sequence[GPU], *, span: float = SPAN) -> Scenario:
    """The setting of this name on these GPUs. Loads need not be those of the list.

    Args:
        span: in mean durations of an hour.

    Raises:
        InvalidRequest: no such setting, or one that asks for what these GPUs do not offer.
    """
    mixes = "|".join(MIXES)
    if match := re.fullmatch(rf"steady-({mixes})-(\d\.\d{{1,2}})", name):
        return _steady(name, gpus, [MIXES[match[1]]], float(match[2]), span)
    if match := re.fullmatch(rf"saturation-({mixes})-(\d\.\d{{1,2}})", name):
        return _saturation(name, gpus, MIXES[match[1]], float(match[2]))
    if match := re.fullmatch(r"held-out-(\d{1,2})-(\d\.\d{1,2})", name):
        return _steady(name, gpus, [held_out(int(match[1]))], float(match[2]), span)
    if match := re.fullmatch(rf"mis-specified-({mixes})-as-({mixes})", name):
        return _steady(name, gpus, [MIXES[match[1]]], 1.0, span, told=Demand.of(MIXES[match[2]]))
    if match := re.fullmatch(r"moving-(\d\.\d{1,2})", name):
        return _steady(name, gpus, [MIXES[mix] for mix in MOVING], float(match[1]), span)
    raise InvalidRequest(
        f"{name[:80]!r} is no scenario. One is called like steady-notebook-0.9 or saturation-uniform-1.0; `--list` shows all."
    )


def _steady(
    name: str, gpus: Sequence[GPU], mixes: Sequence[Mix], load: float, span: float, *, told: Demand | None = None
) -> Scenario:
    if load <= 0:
        raise InvalidRequest(f"The load of {name} is more than 0.")
    # A mix that moves is at this load on average of what each would carry.
    rate = load * sum(fits(gpus, mix) for mix in mixes) / len(mixes)
    warm_up = WARM_UP if len(mixes) == 1 else WARM_UP / len(mixes)
    demand = told or (Demand.of(mixes[0]) if len(mixes) == 1 else None)
    traffic = Steady(rate, span, mixes)
    return Scenario(name, gpus, lambda seed: list(traffic.arrivals(seed)), demand, warm_up * span * HOUR, span * HOUR)


def _saturation(name: str, gpus: Sequence[GPU], mix: Mix, demand: float) -> Scenario:
    sizes: dict[ProfileName, int] = {}
    for gpu in gpus:
        sizes |= {p.name: p.size for p in gpu.profiles}
    lacking = [str(profile) for profile in mix if profile not in sizes]
    if lacking:
        raise InvalidRequest(f"No GPU of this fleet offers {', '.join(lacking)}, which {name} asks for.")
    traffic = Filling(demand * sum(gpu.grid for gpu in gpus), sizes, mix)
    return Scenario(name, gpus, lambda seed: list(traffic.arrivals(seed)), Demand.of(mix))


def of_trace(name: str, gpus: Sequence[GPU], trace: Trace, *, warm_up: float = 0.0) -> Scenario:
    """Somebody's own arrivals."""
    return Scenario(name, gpus, lambda _: trace, None, warm_up, seeded=False)


def demand_of(trace: Trace, gpus: Sequence[GPU]) -> Demand:
    """What the arrivals of a trace ask for, as shares of profiles: any slice with enough memory is the smallest such, a whole GPU the
    largest profile."""
    counts: dict[ProfileName, float] = {}
    kinds = list({id(gpu.profiles): gpu for gpu in gpus}.values())
    for arrival in trace:
        name = profile_of(arrival.request, kinds)
        if name is not None:
            counts[name] = counts.get(name, 0.0) + 1.0
    return Demand.of(counts)


def profile_of(request: Request, kinds: Sequence[GPU]) -> ProfileName | None:
    """The profile that a request weighs as; None if none would do, or if it is for one device by name."""
    names = sorted({p.name for gpu in kinds for p in plain(gpu)}, key=lambda n: (n.memory_gb, n.compute_slices))
    match request:
        case SliceRequest(profile):
            return profile
        case MemoryRequest(memory):
            return next((name for name in names if name.memory_gb >= memory), None)
        case WholeRequest():
            return names[-1] if names else None
        case DeviceRequest():
            return None
