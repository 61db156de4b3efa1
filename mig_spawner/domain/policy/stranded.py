"""How broken up a GPU is, as a number and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy.demand import PARTS, UNKNOWN, Demand
from mig_spawner.domain.policy.fragmentation import useless


@dataclass(frozen=True, slots=True)
class Stranded:
    """What is free on a GPU, and of how much use it is.

    Attributes:
        part: of the GPU is free, and the next request is expected not to be able to use it, 0 to 1.
        sentence: what is free and does not fit, such as "4 of 8 memory slices are free, yet no 3g.40gb fits."; empty if all fits that
            the free slices could hold, were they in one piece.
    """

    part: float
    sentence: str


def stranded(state: GPUState, demand: Demand = UNKNOWN) -> Stranded | None:
    """How broken up a GPU is for this demand; None for one on which nothing is cut, or nothing is granted now."""
    gpu, layout = state.gpu, state.layout
    if state.unavailable is not None or not state.cuttable_when_empty:
        return None
    part = useless(layout, demand) / PARTS / gpu.grid
    free = gpu.grid - layout.taken
    plain = [p for p in gpu.profiles if not p.name.suffix and p.size <= free]
    fitting = {p.size for p in plain if layout.starts(p)}
    lost = [p for p in plain if p.size not in fitting]
    if not lost or layout.empty:
        return Stranded(part, "")
    # The smallest says most: whoever wants more does not fit either.
    name = min(lost, key=lambda p: (p.size, p.compute_slices)).name
    return Stranded(part, f"{free} of {gpu.grid} memory slices are free, yet no {name} fits.")
