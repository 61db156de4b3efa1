"""What a run came to: figures that can be compared with those of other runs, and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mig_spawner.planning.measure import quantile
from mig_spawner.planning.simulation import Outcome

MEASURES: Final[Mapping[str, str]] = {
    "accepted_slices": "accepted part of the slice-time that was asked for",
    "accepted_sizes": "accepted part of the memory slices that were asked for, for however long",
    "accepted_requests": "accepted part of the requests",
    "wait_p50_s": "half of those who were served waited no longer, seconds",
    "wait_p90_s": "nine of ten who were served waited no longer, seconds",
    "wait_longest_s": "the longest wait, of those who were not served as well, seconds",
    "starved_requests": "part of the requests that waited longer than half an hour, after which a GPU may be earmarked",
    "active_gpus": "GPUs in use, on average over time",
    "stranded_gpus": "GPUs' worth of free memory slices of no use for the next request, on average over time",
    "wasted_gpu_hours": "GPU-hours of free memory slices on GPUs in use",
}
"""What is measured, and what it says."""

OF_TIME: Final = frozenset({"active_gpus", "stranded_gpus", "wasted_gpu_hours"})
"""Those that say something of a quiet time as well."""


@dataclass(frozen=True, slots=True)
class Part:
    """One run, or one part of the time of a run.

    Attributes:
        asked: requests. A part without any says nothing of waits and acceptance.
        figures: by the names of `MEASURES`.
        refused: by reason; by profile; by group.
    """

    asked: int
    figures: Mapping[str, float]
    refused_why: Mapping[str, int]
    refused_by_profile: Mapping[str, int]
    refused_by_group: Mapping[str, int]

    @classmethod
    def of(cls, outcome: Outcome) -> Part:
        """The figures of an outcome."""
        figures = {
            "accepted_slices": _part(outcome.accepted_time, outcome.asked_time),
            "accepted_sizes": _part(outcome.accepted_size, outcome.asked_size),
            "accepted_requests": _part(outcome.accepted, outcome.asked),
            "wait_p50_s": quantile(outcome.waits, 0.5),
            "wait_p90_s": quantile(outcome.waits, 0.9),
            "wait_longest_s": outcome.longest,
            "starved_requests": _part(outcome.starved, outcome.asked, of_none=0.0),
            "active_gpus": _part(outcome.active_time, outcome.span, of_none=0.0),
            "stranded_gpus": _part(outcome.stranded_time, outcome.span, of_none=0.0),
            "wasted_gpu_hours": outcome.wasted_gpu_hours,
        }
        refused = outcome.refused_why, outcome.refused_by_profile, outcome.refused_by_group
        return cls(outcome.asked, figures, *map(dict, refused))

    def as_json(self) -> dict[str, Any]:
        """As JSON that `Part(**…)` reads back, to the last bit."""
        return asdict(self)


def _part(some: float, of: float, of_none: float = 1.0) -> float:
    return some / of if of else of_none


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of several parts together, by name."""
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return dict(sorted(found.items()))
