"""Saying once when a node becomes silent, and once when it is heard again."""

from __future__ import annotations

import logging
from collections.abc import Mapping

log = logging.getLogger(__name__)


class Silence:
    """What this process has said of silent nodes. It is for the log alone: who is silent stands in the ledger."""

    def __init__(self) -> None:
        self._said: frozenset[str] = frozenset()

    def tell(self, silent: Mapping[str, bool]) -> None:
        """Log what has changed since the last call. `silent` has every node by its name."""
        now = frozenset(node for node, is_silent in silent.items() if is_silent)
        for node in sorted(now - self._said):
            log.warning("Node %s is silent: nothing more is granted there, what runs there is left alone", node)
        for node in sorted(self._said - now):
            if node in silent:  # and was not forgotten
                log.info("Node %s reports again", node)
        self._said = now
