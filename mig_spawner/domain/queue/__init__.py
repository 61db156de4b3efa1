"""The line of those who wait: who is next, who may pass whom, what is kept for whom. Pure; see `docs/queue.md`.

`Outlook` is one GPU with what will happen on it, `Board` the fleet of one pass, `Guards` keep the places of those who wait, and
`Line` goes along the queue.
"""

from mig_spawner.domain.queue.board import Board, Memory, hidden
from mig_spawner.domain.queue.guard import Guards
from mig_spawner.domain.queue.line import Line, Turn
from mig_spawner.domain.queue.outlook import Outlook, Spot, Start, Stay, could_serve
from mig_spawner.domain.queue.starvation import STARVATION_AFTER, earmark_for, earmark_heads

__all__ = [
    "STARVATION_AFTER",
    "Board",
    "Guards",
    "Line",
    "Memory",
    "Outlook",
    "Spot",
    "Start",
    "Stay",
    "Turn",
    "could_serve",
    "earmark_for",
    "earmark_heads",
    "hidden",
]
