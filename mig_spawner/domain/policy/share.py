"""Our own policy in closed form: spend least of what people are likely to ask for next."""

from __future__ import annotations

from mig_spawner.domain.gpu import Layout
from mig_spawner.domain.policy.base import Potential
from mig_spawner.domain.policy.demand import Demand


def spent(layout: Layout, demand: Demand) -> int:
    """Minus the worth of what a GPU could still serve, in parts per million of a squared memory slice.

    V = - sum over profiles p: share(p) x size(p)^2 x cap(p), cap(p) being how many more p fit there if nothing else came. A
    size counts once for the slices it would use, and once more since large requests have few places to go.
    """
    profiles = layout.gpu.profiles
    return -sum(
        share * profile.size * profile.size * layout.capacity(profile)
        for profile, share in zip(profiles, demand.parts(profiles), strict=True)
        if share
    )


def share_weighted(demand: Demand) -> Potential:
    """SW: the least rise of `spent`. One formula, no tables, and it follows the demand.

    Source: our study; see `docs/placement.md`.
    """
    return Potential(lambda layout: spent(layout, demand), degree=2)
