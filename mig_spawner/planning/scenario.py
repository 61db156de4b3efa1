"""The named settings of our study, and settings made of somebody's own trace. The same name and seed give the same arrivals.

steady-MIX-LOAD             people come and go; load 1.0 is what would just fit
saturation-MIX-DEMAND       people come and stay, until so much of the memory slices was asked for (the MFI paper)
held-out-NUMBER-LOAD        steady, on one of twenty mixes that nothing was ever tuned on
mis-specified-MIX-as-MIX    steady at load 1.0, while policies are told another mix
moving-LOAD                 steady, of notebooks first, then of large requests, then of all alike
fleet-COUNT-MIX-LOAD        steady, on so many GPUs
enough-COUNT-MIX            steady, on so many GPUs, with the demand that is load 0.8 on a hundred: how few serve 99 %?
small-LOAD                  a demand of all profiles alike on a handful of GPUs (--gpu), for which the best possible is known
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

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

COUNTS: Final = (8, 30, 100, 300, 1000)
ENOUGH: Final = range(88, 107, 2)
ENOUGH_MIXES: Final = ("notebook", "uniform")
ENOUGH_LOAD: Final = 0.8
SMALL_LOADS: Final = (0.9, 1.0)
SMALL_LONGER: Final = 100
"""Times as long as other scenarios, since so few come."""

STUDY: Final = tuple(f"steady-{mix}-{load}" for mix in MIXES for load in (0.9, 1.0))
"""Those of the published table."""

STUDIES: Final[Mapping[str, Sequence[str]]] = {
    "study": STUDY,
    "study-saturation": ("saturation-uniform-1.0",),
    "study-held-out": [f"held-out-{number}-{load}" for number in HELD_OUT for load in HELD_OUT_LOADS],
    "study-mis-specified": [f"mis-specified-{mix}-as-{other}" for mix in MIXES for other in MIXES if mix != other],
    "study-fleet": [f"fleet-{count}-notebook-1.0" for count in COUNTS],
    "study-enough": [f"enough-{count}-{mix}" for mix in ENOUGH_MIXES for count in ENOUGH],
}
"""What a part of `docs/placement.md` is made of: one name for several settings."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A setting.

    Attributes:
        arrivals: by seed.
        told: the demand that policies are told; None for that of the arrivals themselves.
        moves: at which seconds the mix changes, and to which.
        warm_up: seconds at the beginning that do not count.
        end: seconds; None for the last arrival.
        seeded: whether another seed gives other arrivals.
        forgetful: how many come in a mean duration of an hour, where durations are such that the best possible can be worked out.
    """

    name: str
    gpus: Sequence[GPU]
    arrivals: Callable[[int], Trace]
    told: Demand | None = None
    moves: tuple[tuple[float, Demand], ...] = ()
    warm_up: float = 0.0
    end: float | None = None
    seeded: bool = True
    forgetful: float | None = None


def list_scenarios() -> list[str]:
    """The names of all."""
    return [
        *(f"steady-{mix}-{load}" for mix in MIXES for load in LOADS),
        *(f"saturation-{mix}-{demand}" for mix in MIXES for demand in DEMANDS),
        *(f"held-out-{number}-{load}" for number in HELD_OUT for load in HELD_OUT_LOADS),
        *STUDIES["study-mis-specified"],
        "moving-1.0",
        *STUDIES["study-fleet"],
        *STUDIES["study-enough"],
        *(f"small-{load}" for load in SMALL_LOADS),
    ]


def scenario(name: str, gpus: Sequence[GPU], *, span: float = SPAN) -> Scenario:
    """The setting of this name on these GPUs. Loads need not be those of the list.

    Args:
        span: in mean durations of an hour.

    Raises:
        InvalidRequest: no such setting, or one that asks for what these GPUs do not offer.
    """
    for pattern, make in _KINDS:
        if match := re.fullmatch(pattern, name):
            return make(_Asked(name, gpus, span), *match.groups())
    raise InvalidRequest(
        f"{name[:80]!r} is no scenario. One is called like steady-notebook-0.9 or saturation-uniform-1.0; `--list` shows all."
    )


class _Asked(NamedTuple):
    """What is the same for all kinds of scenarios."""

    name: str
    gpus: Sequence[GPU]
    span: float

    def of(self, count: int) -> list[GPU]:
        """So many GPUs of the first kind."""
        return [replace(self.gpus[0], gpu_uuid=f"GPU-{number}") for number in range(count)]


def _steady(asked: _Asked, mix: str, load: str) -> Scenario:
    return _coming(asked, MIXES[mix], _rate(asked.gpus, MIXES[mix], float(load)))


def _held_out(asked: _Asked, number: str, load: str) -> Scenario:
    mix = held_out(int(number))
    return _coming(asked, mix, _rate(asked.gpus, mix, float(load)))


def _mis_specified(asked: _Asked, mix: str, other: str) -> Scenario:
    setting = _coming(asked, MIXES[mix], _rate(asked.gpus, MIXES[mix], 1.0))
    return replace(setting, told=Demand.of(MIXES[other]))


def _fleet(asked: _Asked, count: str, mix: str, load: str) -> Scenario:
    asked = asked._replace(gpus=asked.of(int(count)))
    return _steady(asked, mix, load)


def _enough(asked: _Asked, count: str, mix: str) -> Scenario:
    rate = _rate(asked.of(100), MIXES[mix], ENOUGH_LOAD)
    return _coming(asked._replace(gpus=asked.of(int(count))), MIXES[mix], rate)


def _small(asked: _Asked, load: str) -> Scenario:
    mix = dict.fromkeys(sorted({p.name for gpu in asked.gpus for p in plain(gpu)}), 1.0)
    asked = asked._replace(span=asked.span * SMALL_LONGER)
    rate = _rate(asked.gpus, mix, float(load))
    traffic = Steady(rate, asked.span, [mix], forgetful=True)
    return replace(
        _coming(asked, mix, rate),
        arrivals=lambda seed: list(traffic.arrivals(seed)),
        warm_up=asked.span * HOUR / SMALL_LONGER,
        forgetful=rate,
    )


def _moving(asked: _Asked, load: str) -> Scenario:
    mixes = [MIXES[mix] for mix in MOVING]
    # At this load on average of what each would carry.
    rate = sum(_rate(asked.gpus, mix, float(load)) for mix in mixes) / len(mixes)
    traffic, end = Steady(rate, asked.span, mixes), asked.span * HOUR
    return Scenario(
        asked.name,
        asked.gpus,
        lambda seed: list(traffic.arrivals(seed)),
        moves=tuple((end * number / len(mixes), Demand.of(mix)) for number, mix in enumerate(mixes)),
        warm_up=WARM_UP / len(mixes) * end,
        end=end,
    )


def _rate(gpus: Sequence[GPU], mix: Mix, load: float) -> float:
    if load <= 0:
        raise InvalidRequest("The load of a scenario is more than 0.")
    return load * fits(gpus, mix)


def _coming(asked: _Asked, mix: Mix, rate: float) -> Scenario:
    """People who come and go, so many in a mean duration."""
    traffic, end = Steady(rate, asked.span, [mix]), asked.span * HOUR
    return Scenario(
        asked.name,
        asked.gpus,
        lambda seed: list(traffic.arrivals(seed)),
        Demand.of(mix),
        warm_up=WARM_UP * end,
        end=end,
    )


def _saturation(asked: _Asked, mix: str, demand: str) -> Scenario:
    sizes: dict[ProfileName, int] = {}
    for gpu in asked.gpus:
        sizes |= {p.name: p.size for p in gpu.profiles}
    lacking = [str(profile) for profile in MIXES[mix] if profile not in sizes]
    if lacking:
        raise InvalidRequest(f"No GPU of this fleet offers {', '.join(lacking)}, which {asked.name} asks for.")
    traffic = Filling(float(demand) * sum(gpu.grid for gpu in asked.gpus), sizes, MIXES[mix])
    return Scenario(asked.name, asked.gpus, lambda seed: list(traffic.arrivals(seed)), Demand.of(MIXES[mix]))


_MIX: Final = f"({'|'.join(MIXES)})"
_LOAD: Final = r"(\d\.\d{1,2})"
_COUNT: Final = r"([1-9]\d{0,3})"
_KINDS: Final[Sequence[tuple[str, Callable[..., Scenario]]]] = (
    (rf"steady-{_MIX}-{_LOAD}", _steady),
    (rf"saturation-{_MIX}-{_LOAD}", _saturation),
    (rf"held-out-(\d{{1,2}})-{_LOAD}", _held_out),
    (rf"mis-specified-{_MIX}-as-{_MIX}", _mis_specified),
    (rf"moving-{_LOAD}", _moving),
    (rf"fleet-{_COUNT}-{_MIX}-{_LOAD}", _fleet),
    (rf"enough-{_COUNT}-{_MIX}", _enough),
    (rf"small-{_LOAD}", _small),
)


def of_trace(name: str, gpus: Sequence[GPU], trace: Trace, *, warm_up: float = 0.0) -> Scenario:
    """Somebody's own arrivals."""
    return Scenario(name, gpus, lambda _: trace, warm_up=warm_up, seeded=False)


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
