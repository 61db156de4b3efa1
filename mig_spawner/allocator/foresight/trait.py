"""Traits of the allocator that are about placement."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, Enum, Float, List, Unicode
from traitlets.config import Configurable

from mig_spawner.domain.policy import DEFAULT_POLICY, POLICIES


class PolicyTraits(Configurable):
    """A part of `AllocatorApp`, where they are set."""

    policy = Enum(
        sorted(POLICIES),
        default_value=DEFAULT_POLICY,
        help="Where slices are cut. " + " ".join(f"`{p.name}`: {p.summary}" for p in POLICIES.values()),
    ).tag(config=True)

    pools = Dict(
        List(Unicode()),
        key_trait=Unicode(),
        help="""Groups of nodes that are looked at together, each with patterns of names: `{"lab": ["gpu-lab-*"]}`.

        A node is in the first pool that names it, else in the pool `default`. How broken up a pool is stands in `metrics`, at the
        nodes and in `explain`. Name those nodes together that can stand in for each other.
        """,
    ).tag(config=True)

    plan_interval = Float(
        60,
        help="""Seconds between two looks whether placement needs a new plan. 0 for never.

        One is made after every 200 requests and for GPUs of a new kind, where the policy asks what people want. It takes a process of its
        own some ten seconds for each kind of GPU, at low priority; until it is there the old plan serves.
        """,
    ).tag(config=True)

    def placement_settings(self) -> dict[str, Any]:
        """What of this a transaction goes by, as arguments of `Setting`."""
        return {
            "policy": self.policy,
            "pools": tuple((pool, tuple(nodes)) for pool, nodes in self.pools.items()),
        }
