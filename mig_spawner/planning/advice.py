"""How should the GPUs be cut? Ways to cut them side by side, with the fewest GPUs that keep the promise by each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mig_spawner.domain.gpu import GPU
from mig_spawner.domain.policy import Demand
from mig_spawner.domain.policy.priced.rehearsal import Traffic
from mig_spawner.domain.profile import ProfileName
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.call import Lesson, Stream
from mig_spawner.planning.cover import Cover, cover
from mig_spawner.planning.fleet import ALL_1G, ALL_BALANCED, Cut, dynamic, named_cut
from mig_spawner.planning.need import Need, Target, added, base_need, highest, moments
from mig_spawner.planning.setup import AUTO, ranking_for
from mig_spawner.planning.simulation import Course, run
from mig_spawner.planning.traffic import HOUR, Calls

ONCE: Final = "cut once"
DEMAND: Final = "cut on demand"
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to cut, and what it takes.

    Attributes:
        name: `cut once`, `cut on demand`, or a layout by name.
        gpus: the fewest GPUs that keep the promise; None if no number of those at hand does.
        why: a sentence: the sum, or what is missing.
        cuts: how each GPU is cut, where they are cut once and for all.
        least: no way of this kind takes fewer, as far as is known.
        simulated: of the requests of the profile that fares worst so many were served at once; None where nothing was simulated.
    """

    name: str
    gpus: int | None
    why: str
    cuts: tuple[tuple[GPU, Cut], ...] = ()
    least: int = 0
    simulated: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """All ways, and the best of them.

    Attributes:
        base: what the streams take at any time.
        times: when classes meet, and what is needed then in all.
        best: the way with the fewest GPUs; of equals the one that has nothing to cut while people work.
    """

    streams: tuple[Stream, ...]
    target: Target
    base: Need
    times: tuple[tuple[str, Need], ...]
    ways: tuple[Way, ...]
    best: Way | None


@dataclass(frozen=True, slots=True)
class Trial:
    """How `cut on demand` is tried. Without seeds it is not, and the sums alone count."""

    seeds: Sequence[int] = SEEDS
    hours: float = 500.0
    rehearsed: int = Traffic(1).arrivals


def advise(
    gpus: Sequence[GPU],
    streams: Sequence[Stream],
    lessons: Sequence[Lesson],
    target: Target,
    *,
    today: Mapping[str, Sequence[Cut]] | None = None,
    trial: Trial = Trial(),
    step: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Compare the ways to cut these GPUs for this demand.

    Args:
        gpus: what is at hand; of each kind the first ones are taken first.
        today: layouts of one's own by name, as a cut for each of the first GPUs.

    Raises:
        InvalidRequest: nothing is asked for, or a profile that none of these GPUs offers.
    """
    base = base_need(streams, target)
    times = tuple((name, added(base, there)) for name, there in moments(lessons)) or (("at any time", base),)
    needs = [need for _, need in times]
    most = {name: count for name, count in highest(needs).items() if count}
    if not most:
        raise InvalidRequest("Nothing is asked for: name a demand or a class.")
    for name in most:
        if not any(gpu.profile(name) is not None for gpu in gpus):
            raise InvalidRequest(f"None of these GPUs offers {name}.")
    step("cut once")
    ways = [_once(gpus, most)]
    step("cut on demand")
    ways.append(_on_demand(gpus, needs, streams, lessons, target, trial, step))
    ways += [_named(gpus, name, most) for name in (ALL_1G, ALL_BALANCED)]
    ways += [_own(name, cuts, gpus, most) for name, cuts in (today or {}).items()]
    able = [way for way in ways if way.gpus is not None]
    best = min(able, key=lambda way: way.gpus or 0, default=None)
    return Advice(tuple(streams), target, base, times, tuple(ways), best)


def _once(gpus: Sequence[GPU], most: Need) -> Way:
    found = cover(gpus, most)
    if found is None:
        return Way(ONCE, None, f"{len(gpus)} GPUs do not hold {_counts(most)}")
    proof = "and fewer cannot" if len(found.gpus) == found.least else f"and fewer than {found.least} cannot"
    return Way(ONCE, len(found.gpus), f"they hold {_counts(most)}, {proof}", found.gpus, found.least)


def _on_demand(
    gpus: Sequence[GPU],
    needs: Sequence[Need],
    streams: Sequence[Stream],
    lessons: Sequence[Lesson],
    target: Target,
    trial: Trial,
    step: Callable[[str], None],
) -> Way:
    covers = [cover(gpus, need) for need in needs]
    held = [found for found in covers if found is not None]
    if not streams or not trial.seeds or target.acceptance is None:
        lacking = next((need for need, found in zip(needs, covers, strict=True) if found is None), None)
        if lacking is not None:
            return Way(DEMAND, None, f"{len(gpus)} GPUs do not hold {_counts(lacking)} at once")
        sizes = [len(found.gpus) for found in held]
        busiest = needs[sizes.index(max(sizes))]
        why = f"at the busiest time they are cut to hold {_counts(busiest)}"
        return Way(DEMAND, max(sizes), why, least=max(found.least for found in held))
    largest = max(held, key=lambda found: len(found.gpus), default=Cover((), 0))
    tries = _Tries(_first(gpus, largest), streams, lessons, target.acceptance, trial, step)
    enough = len(largest.gpus) if len(held) == len(covers) else len(gpus)
    why = f"tried with {len(trial.seeds)} x {trial.hours:g} hours of arrivals by chance"
    fewest = tries.fewest(enough)
    if fewest is None:
        return Way(DEMAND, None, f"{why}, all {len(gpus)} GPUs serve too few", simulated=tries.served(len(gpus)))
    return Way(DEMAND, fewest, why, simulated=tries.served(fewest))


def _first(gpus: Sequence[GPU], found: Cover) -> list[GPU]:
    """These GPUs, those of the cover in front."""
    wanted = {gpu.gpu_uuid for gpu, _ in found.gpus}
    return sorted(gpus, key=lambda gpu: gpu.gpu_uuid not in wanted)


class _Tries:
    """Simulations of GPUs that are cut on demand, the first so many of them."""

    def __init__(
        self,
        gpus: Sequence[GPU],
        streams: Sequence[Stream],
        lessons: Sequence[Lesson],
        acceptance: float,
        trial: Trial,
        step: Callable[[str], None],
    ) -> None:
        self._gpus = gpus
        self._traffic = Calls(streams, lessons, trial.hours)
        self._demand = Demand.of({stream.profile: stream.per_hour for stream in streams})
        self._acceptance = acceptance
        self._trial = trial
        self._step = step
        self._known: dict[int, float] = {}

    def fewest(self, enough: int) -> int | None:
        """The fewest GPUs that serve as many as was promised; `enough` is a guess."""
        while not self._keep(enough):
            enough += 1
            if enough > len(self._gpus):
                return None
        least = 0
        while enough - least > 1:
            middle = (least + enough) // 2
            if self._keep(middle):
                enough = middle
            else:
                least = middle
        return enough

    def _keep(self, count: int) -> bool:
        return self.served(count) >= self._acceptance

    def served(self, count: int) -> float:
        """The part of the requests that is served at once, of the profile that fares worst."""
        if count not in self._known:
            self._step(f"{DEMAND}, {count} GPUs")
            self._known[count] = self._play(self._gpus[:count])
        return self._known[count]

    def _play(self, gpus: Sequence[GPU]) -> float:
        trial, demand = self._trial, self._demand
        ranking = ranking_for(AUTO, gpus, demand, rehearsed=trial.rehearsed)
        warm_up = trial.hours * HOUR / 5
        asked: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for seed in trial.seeds:
            trace = self._traffic.arrivals(seed)
            asked.update(str(arrival.request) for arrival in trace if arrival.at >= warm_up)
            (outcome,) = run(trace, dynamic(gpus), Course(ranking, demand, warm_up=warm_up))
            refused += outcome.refused_by_profile
        return min((1 - refused[name] / count for name, count in asked.items()), default=1.0)


def _named(gpus: Sequence[GPU], name: str, most: Need) -> Way:
    return _fewest(name, [(gpu, named_cut(gpu, name)) for gpu in gpus], most)


def _own(name: str, cuts: Sequence[Cut], gpus: Sequence[GPU], most: Need) -> Way:
    if len(cuts) > len(gpus):
        raise InvalidRequest(f"The layout {name} is for {len(cuts)} GPUs, and there are {len(gpus)}.")
    return _fewest(name, list(zip(gpus, cuts, strict=False)), most)


def _fewest(name: str, cut: Sequence[tuple[GPU, Cut]], most: Need) -> Way:
    """The first GPUs of a layout that hold what is needed."""
    have: Counter[ProfileName] = Counter()
    for number, (_, names) in enumerate(cut, start=1):
        have.update(names)
        if all(have[profile] >= count for profile, count in most.items()):
            return Way(name, number, f"they hold {_counts(most)}", tuple(cut[:number]), number)
    lacking = {profile: count - have[profile] for profile, count in most.items() if have[profile] < count}
    none = [profile for profile in lacking if not have[profile]]
    if none:
        return Way(name, None, f"it has no {' and no '.join(map(str, none))}")
    return Way(name, None, f"all {len(cut)} of them lack {_counts(lacking)}")


def _counts(need: Mapping[ProfileName, int]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in sorted(need.items()) if count)
