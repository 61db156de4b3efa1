"""Pools of nodes, from the ledger: how broken up the GPUs of each are together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from mig_spawner.allocator.ledger import Ledger
from mig_spawner.domain.fleet import GPUState
from mig_spawner.domain.policy import stranded_together
from mig_spawner.wire.pool import PoolDocument


def pools_of(ledger: Ledger, states: Iterable[GPUState]) -> tuple[PoolDocument, ...]:
    """The pools of these GPUs by name. Those on which nothing is cut, or nothing is granted now, do not count."""
    pools: dict[str, list[GPUState]] = defaultdict(list)
    by_node: dict[str, str] = {}
    for state in states:
        if state.unavailable is None and state.cuttable_when_empty:
            pool = by_node.get(state.node)
            if pool is None:
                pool = by_node[state.node] = ledger.setting.pool_of(state.node)
            pools[pool].append(state)
    return tuple(_document(ledger, pool, pools[pool]) for pool in sorted(pools))


def _document(ledger: Ledger, pool: str, states: list[GPUState]) -> PoolDocument:
    lost = stranded_together(states, ledger.demand)
    return PoolDocument(
        pool=pool,
        nodes=len({state.node for state in states}),
        gpus=len(states),
        stranded=0.0 if lost is None else round(lost.part, 4),
        fragmentation="" if lost is None else lost.sentence,
    )
