"""Policies that measure how broken up a GPU is, and take the place that makes it least worse.

Both compare the measure after a placement with that before. They differ in what they count as broken, and in whether they ask
what people want.
"""

from __future__ import annotations

from mig_spawner.domain.gpu import Layout, Placement
from mig_spawner.domain.policy.base import Potential
from mig_spawner.domain.policy.demand import Demand


def fragmentation(layout: Layout) -> int:
    """How broken up a GPU is after the MFI paper, in memory slices.

    F = sum over the profiles p that the free amount could hold, were it in one piece, and over the starts k of p: size(p), if the
    window of p at k touches anything taken. Engines do not count, nor does demand; variants with a media suffix are
    left out, for the paper's profiles are the plain ones.
    """
    free = layout.gpu.grid - layout.taken
    return sum(
        profile.size
        for profile in layout.gpu.profiles
        if not profile.name.suffix and profile.size <= free
        for start in profile.starts
        if layout.mask & Placement("", start, profile.size).mask
    )


def min_fragmentation(demand: Demand) -> Potential:
    """MFI: the least increment of `fragmentation`. It looks at the state alone, whatever people ask for.

    Source: the paper on minimum fragmentation increment for online scheduling of MIG instances, whose mixes `uniform`, `skew-small`,
    `skew-big` and `bimodal` are also those of our benchmark. There it scans every GPU for every request.
    """
    del demand
    return Potential(fragmentation)


def useless(layout: Layout, demand: Demand) -> int:
    """How many free memory slices the next request is expected not to be able to use, in parts per million of a slice.

    F = sum over profiles p: share(p) x the free slices that no window of p which is legal now covers.
    """
    total = 0
    everything = (1 << layout.gpu.grid) - 1
    profiles = layout.gpu.profiles
    for profile, share in zip(profiles, demand.parts(profiles), strict=True):
        if share:
            covered = layout.mask
            for start in layout.starts(profile):
                covered |= Placement("", start, profile.size).mask
            total += share * (everything & ~covered).bit_count()
    return total


def expected_fragmentation(demand: Demand) -> Potential:
    """FGD: the least increment of `useless`.

    Source: fragmentation gradient descent (Weng and others, USENIX ATC 2023), made there for fractions of GPUs without places; this is our
    port of it to windows. Good for large requests, poor where most are small: a slice that fits a 1g never counts as lost for it.
    """
    return Potential(lambda layout: useless(layout, demand))
