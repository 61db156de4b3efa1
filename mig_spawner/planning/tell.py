"""Advice in words and sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mig_spawner.domain.profile import ProfileName
from mig_spawner.planning.advice import Advice, Way
from mig_spawner.planning.report import columns


def as_text(advice: Advice) -> str:
    """What is asked for, what it takes by each way, and which is the best."""
    blocks = [f"Promise: {advice.target}."]
    if advice.streams:
        lines = [["what comes", "at once, on average", "instances that keep the promise"]]
        lines += [[str(s), f"{s.per_hour:g} x {s.hours:g} = {s.at_once:.1f}", ""] for s in advice.streams]
        lines += [[f"{name} in all", "", str(count)] for name, count in advice.base.items()]
        blocks.append(columns(lines))
    lines = [["when", "is needed at once"], *([name, _counts(need)] for name, need in advice.times)]
    blocks.append(columns(lines))
    lines = [["way", "GPUs", "since"]]
    lines += [[way.name, "-" if way.gpus is None else str(way.gpus), _since(way)] for way in advice.ways]
    blocks.append(columns(lines))
    best = advice.best
    if best is None:
        blocks.append("No way keeps the promise with these GPUs.")
    else:
        blocks.append(f"Best: {best.name}, with {best.gpus} GPUs.")
        blocks += [_cuts(best)] if best.cuts else []
    return "\n\n".join(blocks) + "\n"


def _since(way: Way) -> str:
    served = "" if way.simulated is None else f"; {way.simulated:.1%} of the profile that fares worst served at once"
    return way.why + served


def _cuts(way: Way) -> str:
    lines = [["GPU", "is cut into"]]
    previous: tuple[str, str] | None = None
    for gpu, cut in way.cuts:
        counts: dict[ProfileName, int] = {}
        for name in cut:
            counts[name] = counts.get(name, 0) + 1
        shown = gpu.model, _counts(counts)
        lines.append([gpu.model, '"' if shown == previous else shown[1]])
        previous = shown
    return columns(lines)


def _counts(need: Mapping[ProfileName, int]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in sorted(need.items()) if count)


def as_document(advice: Advice) -> str:
    """The same as JSON."""
    document: dict[str, Any] = {
        "target": {"acceptance": advice.target.acceptance, "p90_wait_h": advice.target.p90_wait_h},
        "streams": [
            {"profile": str(s.profile), "per_hour": s.per_hour, "hours": s.hours, "at_once": s.at_once}
            for s in advice.streams
        ],
        "times": [{"when": name, "need": _need(need)} for name, need in advice.times],
        "ways": [_way(way) for way in advice.ways],
        "best": None if advice.best is None else advice.best.name,
    }
    return json.dumps(document, indent=2) + "\n"


def _way(way: Way) -> dict[str, Any]:
    return {
        "name": way.name,
        "gpus": way.gpus,
        "why": way.why,
        "simulated": None if way.simulated is None else round(way.simulated, 6),
        "cuts": [{"model": gpu.model, "profiles": [str(name) for name in cut]} for gpu, cut in way.cuts],
    }


def _need(need: Mapping[ProfileName, int]) -> dict[str, int]:
    return {str(name): count for name, count in sorted(need.items()) if count}
