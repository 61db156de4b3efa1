"""Policies that look at how full a GPU is: first-fit, best-fit, worst-fit, and the order of the driver.

They are what is in use today, and what the others are measured against. The names FF, BF-BI and WF-BI are those of the paper
on minimum fragmentation increment (see `fragmentation`).
"""

from __future__ import annotations

from functools import lru_cache

from mig_spawner.domain.gpu import Layout, Placement, Profile
from mig_spawner.domain.policy.base import Rank, per_gpu


def first_fit(layout: Layout, profile: Profile, start: int) -> Rank:
    """FF: the first GPU that has room, at its first free start.

    Source: what kube-scheduler's allocator for dynamic resource allocation does with MIG devices.
    """
    del layout, profile
    return Rank(0, start)


def driver_order(layout: Layout, profile: Profile, start: int) -> Rank:
    """The first GPU that has room, at the start that NVIDIA's driver takes when it is not told one.

    That is what comes of `nvidia-smi mig -cgi` without a placement, and of every tool that only counts.
    """
    return Rank(0, best_index(layout.gpu.profiles, profile)[start])


def best_fit(layout: Layout, profile: Profile, start: int) -> Rank:
    """BF-BI: the fullest GPU that has room, at the best index.

    It keeps GPUs empty for large requests, and on each of them 4g and 3g whole for as long as it can.
    """
    return Rank(-per_gpu(layout.taken, layout.gpu), best_index(layout.gpu.profiles, profile)[start])


def worst_fit(layout: Layout, profile: Profile, start: int) -> Rank:
    """WF-BI, "spread": the emptiest GPU, at the best index.

    It shares out heat, bandwidth and the loss when a GPU fails. It soon leaves no GPU whole: for fleets that are never full.
    """
    return Rank(per_gpu(layout.taken, layout.gpu), best_index(layout.gpu.profiles, profile)[start])


@lru_cache(maxsize=1024)
def best_index(profiles: tuple[Profile, ...], profile: Profile) -> dict[int, int]:
    """The starts of a profile from best (0) to worst: that first which lies in the fewest windows of other profiles.

    On the eight-slice grid that gives 6, 4, 5, 0, 1, 2, 3 for 1g, 6, 4, 0, 2 for 1g with double memory, 4, 0, 2 for 2g and 4, 0 for
    3g. An A100 is seen to make seven 1g in just this order (`nvidia-smi mig -cgi` numbers the instances 13, 11, 12, 7, 8, 9, 10,
    by place), and the papers write it down as a table. Counting windows needs no table, and holds for grids to come.
    """

    def windows(start: int) -> int:
        here = Placement("", start, profile.size).mask
        return sum(
            bool(here & Placement("", other_start, other.size).mask)
            for other in profiles
            if not other.name.suffix
            for other_start in other.starts
        )

    order = sorted(profile.starts, key=lambda start: (windows(start), start))
    return {start: index for index, start in enumerate(order)}
