"""Traits of the allocator that are about placement."""

from __future__ import annotations

from typing import Any

from traitlets import Dict, Enum, Float, List, TraitError, Unicode, validate
from traitlets.config import Configurable

from mig_spawner.domain.policy import DEFAULT_POLICY, POLICIES, Apart


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

    keep_apart = List(
        List(Unicode()),
        help="""Groups that never share a GPU, such as `[["students", "clinic"]]`: each entry keeps the groups in it apart from each other.

        Who is in one of them waits for a GPU on which nobody is who is in another. Who is in none may be anybody's neighbour; who is in
        two of an entry shares with those in the same two only. It costs room: a GPU with one 1g is shut to all the others. A change
        holds from the next start on and ends nothing that runs.
        """,
    ).tag(config=True)

    @validate("keep_apart")
    def _checked_keep_apart(self, proposal: Any) -> list[list[str]]:
        for groups in proposal.value:
            if len(set(groups)) < 2 or not all(groups):
                raise TraitError(f"keep_apart names at least two groups in each entry, not {groups!r}.")
        return list(proposal.value)

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
            "keep_apart": tuple(Apart(frozenset(groups)) for groups in self.keep_apart),
            "pools": tuple((pool, tuple(nodes)) for pool, nodes in self.pools.items()),
        }
