"""Cutting idle partitions anew for those who wait: which cut, and the life of a proposal. Pure; see `docs/layout.md`.

`cut` finds what one GPU could be cut into, `model` is a proposal from the first look to its end.
"""

from mig_spawner.domain.reshape.cut import Cut, Piece, after, cut_for
from mig_spawner.domain.reshape.model import CLOSED, Effect, Place, Reshape, ReshapeState, Window, move

__all__ = ["CLOSED", "Cut", "Effect", "Piece", "Place", "Reshape", "ReshapeState", "Window", "after", "cut_for", "move"]
