"""The rules of a run by name: who waits, and who may have how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.policy import Apart
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.simulation import Quota, Refuse, Rule
from mig_spawner.planning.trace import Arrival
from mig_spawner.planning.waiting import InOrder, Queue

REFUSE: Final = "refuse"
RULES: Final[Mapping[str, Callable[[], Rule]]] = {
    REFUSE: Refuse,
    "in-order": InOrder,
    "queue": partial(Queue, agreed=False),
    "queue-agreed": partial(Queue, agreed=True),
}
"""What makes the rule, by name."""


def quota_of(most: Mapping[str, float]) -> Quota:
    """At most so much of the fleet, in GPUs, for each of these groups at once."""

    def allowed(arrival: Arrival, running: Mapping[int, tuple[Arrival, Decision]]) -> bool:
        if arrival.group not in most:
            return True
        used = sum(decision.share for other, decision in running.values() if other.group == arrival.group)
        return used < most[arrival.group]

    return allowed


def parse_apart(texts: Sequence[str]) -> tuple[Apart, ...]:
    """Read `physics,clinic` several times.

    Raises:
        InvalidRequest: with a sentence that says what to write instead.
    """
    return tuple(Apart(frozenset(filter(None, (name.strip() for name in text.split(","))))) for text in texts)


def parse_quota(texts: Sequence[str]) -> dict[str, float] | None:
    """Read `group=gpus` several times; None for no quota at all.

    Raises:
        InvalidRequest: with a sentence that says what to write instead.
    """
    found: dict[str, float] = {}
    for text in texts:
        group, _, number = text.rpartition("=")
        try:
            most = float(number)
        except ValueError:
            most = -1.0
        if not group or not 0 <= most < inf:
            raise InvalidRequest(f"A quota is written as GROUP=GPUS, like physics=2.5, not {text[:60]!r}.")
        found[group] = most
    return found or None
