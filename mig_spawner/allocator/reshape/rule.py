"""What an admin lets be approved without asking."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from traitlets import Float, Integer, List, Unicode
from traitlets.config import Configurable

from mig_spawner.domain.reshape import Reshape

BY_RULE: Final = "rule"
"""Who approves them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a proposal is approved by itself.

    Attributes:
        pools: only there; `*` for everywhere. Empty for never.
        at_once: so many may be under way at the same time, whoever approved them.
        least_gain: so much earlier the first of those who wait has to begin.
    """

    pools: tuple[str, ...] = ()
    at_once: int = 1
    least_gain: timedelta = timedelta(minutes=10)

    def allows(self, reshape: Reshape, pool: str, under_way: int) -> bool:
        return (
            (pool in self.pools or "*" in self.pools)
            and under_way < self.at_once
            and reshape.effect.gain_s() >= self.least_gain.total_seconds()
        )


class ReshapeTraits(Configurable):
    """A part of `AllocatorApp`, where they are set."""

    reshape_interval = Float(
        30,
        help="""Seconds between two looks whether idle partitions could be cut anew for those who wait. 0 for never.

        What is found is a proposal: nothing is cut before somebody says yes to it, or `reshape_pools` does.
        """,
    ).tag(config=True)

    reshape_pools = List(
        Unicode(),
        help="""Pools (see `pools`) in which proposals to cut idle partitions anew are approved by themselves; `*` for all of them.

        Default: none, so each is approved by hand. `reshape_at_once` and `reshape_minimum_gain` are the limits.
        """,
    ).tag(config=True)

    reshape_at_once = Integer(
        1, help="How many GPUs may be cut anew at the same time before `reshape_pools` approves another one."
    ).tag(config=True)

    reshape_minimum_gain = Float(
        600,
        help="""Seconds by which the first of those who wait has to begin earlier for `reshape_pools` to approve a proposal.

        Where nobody can tell when they would begin as things are, the gain is taken for enough.
        """,
    ).tag(config=True)

    def reshape_rule(self) -> Rule:
        """These as a rule."""
        least = timedelta(seconds=self.reshape_minimum_gain)
        return Rule(tuple(self.reshape_pools), self.reshape_at_once, least)
