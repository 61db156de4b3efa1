"""The rules of a run by name: who waits, and who may have how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from mig_spawner.domain.policy import Apart
from mig_spawner.domain.quota import QuotaRule, Scope, Unit
from mig_spawner.errors import InvalidRequest
from mig_spawner.planning.simulation import Refuse, Rule
from mig_spawner.planning.waiting import InOrder, Queue

REFUSE: Final = "refuse"
RULES: Final[Mapping[str, Callable[[], Rule]]] = {
    REFUSE: Refuse,
    "in-order": InOrder,
    "queue": partial(Queue, agreed=False),
    "queue-agreed": partial(Queue, agreed=True),
}
"""What makes the rule, by name."""


def parse_apart(texts: Sequence[str]) -> tuple[Apart, ...]:
    """Read `physics,clinic` several times.

    Raises:
        InvalidRequest: with a sentence that says what to write instead.
    """
    return tuple(Apart(frozenset(filter(None, (name.strip() for name in text.split(","))))) for text in texts)


def parse_quotas(texts: Sequence[str]) -> tuple[QuotaRule, ...]:
    """Read `group=gpus` several times: what each of these groups may have at once, by compute.

    Raises:
        InvalidRequest: with a sentence that says what to write instead.
    """
    return tuple(_quota(text) for text in texts)


def _quota(text: str) -> QuotaRule:
    group, _, number = text.rpartition("=")
    try:
        most = float(number)
    except ValueError:
        most = -1.0
    if not group or not 0 <= most < inf:
        raise InvalidRequest(f"A quota is written as GROUP=GPUS, like physics=2.5, not {text[:60]!r}.")
    return QuotaRule("", Scope.GROUP, Unit.COMPUTE_SHARE, most, groups=frozenset((group,)))
