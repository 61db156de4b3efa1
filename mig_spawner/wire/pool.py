"""Pools of nodes on the wire: how broken up their GPUs are."""

from __future__ import annotations

from mig_spawner.wire.base import Answer


class PoolDocument(Answer):
    """Nodes that are looked at together.

    Attributes:
        pool: its name, as configured; `default` for nodes that no pool names.
        nodes, gpus: how many; GPUs on which nothing is cut, or nothing is granted now, do not count.
        stranded: the part of its GPUs that is free and of no use for the next request, as expected, 0 to 1.
        fragmentation: what is free on them and yet fits on none, as a sentence; empty if nothing is lost.
    """

    pool: str
    nodes: int
    gpus: int
    stranded: float
    fragmentation: str
