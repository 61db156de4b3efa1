"""Why a request goes where it goes: every place that could be had, how it compares, and what rules out the rest.

It asks the same tables that `choose` asks, so it cannot tell another story than the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mig_spawner.domain.fleet import Decision, GPUState, profiles_for
from mig_spawner.domain.policy.base import Ranking
from mig_spawner.domain.policy.choice import choose, device_decision, standing_decision, whole_level
from mig_spawner.domain.policy.table import table_of
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, Request, WholeRequest

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """One GPU, asked whether it could serve the request now.

    Attributes:
        profile: what would be granted there; None for a whole GPU, or when nothing can be.
        start: the first memory slice; None when nothing can be granted.
        score: between GPUs the least wins; equal ones go by the order of the fleet. None when nothing can be granted.
        why: a sentence.
    """

    node: str
    gpu_uuid: str
    profile: ProfileName | None
    start: int | None
    score: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and its reasons.

    Attributes:
        decision: what `choose` says; None if nothing can be granted.
        candidates: the chosen one first, then those that could serve, the best in front, then the others; at most as many as asked for.
        left_out: how many more GPUs there are.
        summary: a sentence or two for people.
    """

    decision: Decision | None
    candidates: tuple[Candidate, ...]
    left_out: int
    summary: str


def explain(request: Request, fleet: Sequence[GPUState], ranking: Ranking, *, shown: int = SHOWN) -> Explanation:
    """Why `choose` decides as it does on this fleet."""
    decision = choose(request, fleet, ranking)
    wanted = None if decision is None or decision.profile is None else decision.profile.name
    candidates = [_candidate(request, wanted, state, ranking, decision) for state in fleet]
    order = sorted(range(len(fleet)), key=lambda n: (_place(candidates[n], fleet[n], decision), n))
    listed = tuple(candidates[n] for n in order[:shown])
    return Explanation(decision, listed, max(len(fleet) - shown, 0), _summary(request, decision, candidates))


def _place(candidate: Candidate, state: GPUState, decision: Decision | None) -> tuple[int, int]:
    if decision is not None and state.gpu.gpu_uuid == decision.gpu.gpu_uuid:
        return 0, 0
    return (2, 0) if candidate.score is None else (1, candidate.score)


def _candidate(
    request: Request, wanted: ProfileName | None, state: GPUState, ranking: Ranking, decision: Decision | None
) -> Candidate:
    chosen = decision is not None and decision.gpu.gpu_uuid == state.gpu.gpu_uuid
    node, gpu_uuid = state.node, state.gpu.gpu_uuid
    if state.unavailable is not None:
        return Candidate(node, gpu_uuid, None, None, None, f"Nothing is granted here now: {state.unavailable}.")
    if isinstance(request, WholeRequest):
        level = whole_level(state)
        if level is None:
            return Candidate(node, gpu_uuid, None, None, None, _why_not_whole(state))
        why = "Free and uncut." if level == 0 else "Free, but in MIG mode: uncut GPUs go first."
        return Candidate(node, gpu_uuid, None, 0, level, _chosen(why, chosen=chosen))
    if isinstance(request, DeviceRequest):
        found = device_decision(state, request.mig_uuid)
        if found is None:
            return Candidate(node, gpu_uuid, None, None, None, _why_not_device(request, state))
        name = None if found.profile is None else found.profile.name
        why = _chosen("The device stands here, idle.", chosen=chosen)
        return Candidate(node, gpu_uuid, name, found.placement.start, _FIRST, why)
    names = [wanted] if wanted is not None else profiles_for(request, [state])
    for name in names:
        place = _place_for(name, state, ranking)
        if place is not None:
            score, start, why = place
            return Candidate(node, gpu_uuid, name, start, score, _chosen(why, chosen=chosen))
    return Candidate(node, gpu_uuid, None, None, None, _why_not(names, state))


def _place_for(name: ProfileName, state: GPUState, ranking: Ranking) -> tuple[int, int, str] | None:
    standing = standing_decision(state, name)
    if standing is not None:
        why = f"An idle {name} stands here already; it costs no cut and goes before any new one."
        return _FIRST, standing.placement.start, why
    if not state.cuttable:
        return None
    best = table_of(state.gpu, ranking).best(name, state.layout)
    if best is None:
        return None
    starts = state.layout.starts(best.profile)
    among = f"the best of its starts {', '.join(map(str, starts))}" if len(starts) > 1 else "its only start"
    return best.level, best.start, f"Slice {best.start} is {among}; {state.layout.taken} of {state.gpu.grid} are taken."


_FIRST = -(1 << 62)


def _chosen(why: str, *, chosen: bool) -> str:
    return f"Chosen. {why}" if chosen else why


def _why_not(names: Sequence[ProfileName], state: GPUState) -> str:
    if not state.dynamic:
        return "Its partitions are an admin's, and none that would do is idle."
    if state.mig_enabled is None:
        return "It has no MIG mode."
    if not state.cuttable:
        return "It is used as a whole."
    offered = [name for name in names if state.gpu.profile(name) is not None]
    if not offered:
        return "It offers no profile that would do."
    free = state.gpu.grid - state.layout.taken
    return f"{free} of {state.gpu.grid} memory slices are free, yet no {offered[0]} fits."


def _why_not_device(request: DeviceRequest, state: GPUState) -> str:
    stands = any(device.device_uuid == request.mig_uuid for device in state.devices)
    return "The device stands here, and is in use." if stands else "It has no such device."


def _why_not_whole(state: GPUState) -> str:
    if not state.can_be_whole:
        return "It is cut into fixed partitions."
    return "A process runs on it." if state.busy else "Part of it is taken."


def _summary(request: Request, decision: Decision | None, candidates: Sequence[Candidate]) -> str:
    able = [candidate for candidate in candidates if candidate.score is not None]
    if decision is None:
        return f"None of {len(candidates)} GPUs can serve {request} now."
    what = (
        "the whole GPU" if decision.profile is None else f"{decision.profile.name} at slice {decision.placement.start}"
    )
    score = next(c.score for c in candidates if c.gpu_uuid == decision.gpu.gpu_uuid)
    equal = sum(candidate.score == score for candidate in able)
    tie = f" {equal} are equally good; the first in the order of the fleet is taken." if equal > 1 else ""
    return (
        f"{len(able)} of {len(candidates)} GPUs could serve {request}; best is {what} of {decision.gpu.gpu_uuid}.{tie}"
    )
