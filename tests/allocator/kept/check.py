"""Whether what is kept is what would be read anew."""

from __future__ import annotations

from collections import Counter

import pytest

from mig_spawner.allocator.desire import desired_node
from mig_spawner.allocator.kept.census import kind_of
from mig_spawner.allocator.kept.view import View, view_of
from mig_spawner.allocator.ledger import Ledger
from mig_spawner.allocator.setting import Setting
from mig_spawner.allocator.store.base import Store, Transaction
from mig_spawner.domain.policy import POLICIES, Index
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.quota import Unit
from mig_spawner.domain.request import MemoryRequest, Request, SliceRequest, WholeRequest

RANKING = POLICIES["best-fit"].ranking()
REQUESTS: list[Request] = [
    WholeRequest(),
    MemoryRequest(1),
    MemoryRequest(30),
    SliceRequest(ProfileName.parse("1g.10gb")),
]


def check_kept(store: Store, setting: Setting) -> None:
    """In both views of a store: of those who write and of those who read."""
    with store.writing() as tx:
        _check(tx, setting)
    with store.reading(view=True) as tx:
        _check(tx, setting)


def _check(tx: Transaction, setting: Setting) -> None:
    ledger = Ledger(tx, setting, "test")
    kept, anew = view_of(tx, setting), View(setting)
    anew.facts.take_in(tx, None)
    for view in (kept, anew):
        view.fleet.bring_up(tx.now, blind=ledger.blind)
    a, b = kept.facts, anew.facts
    assert (a.holding, a.releasing, a.remnants) == (b.holding, b.releasing, b.remnants)
    assert (list(a.nodes.values()), a.owners) == (list(b.nodes.values()), b.owners)
    assert (a.pods, a.orphans) == (b.pods, b.orphans)
    assert a.held._pieces == b.held._pieces
    for subject in b.held._pieces:
        for unit in Unit:
            assert a.held.total(subject, unit) == pytest.approx(b.held.total(subject, unit))
    assert a.ends.first(lambda _: True) == b.ends.first(lambda _: True)
    states = anew.fleet.in_order()
    assert kept.fleet.in_order() == states
    assert (kept.fleet.silent, a.simulated) == (anew.fleet.silent, b.simulated)
    assert kept.fleet.states == {state.gpu.gpu_uuid: state for state in states}
    assert Counter({kind_of(state): count for state, count in kept.fleet.census}) == Counter(map(kind_of, states))
    index, other = kept.fleet.index(RANKING), Index(states, RANKING)
    assert [index.choose(request) for request in REQUESTS] == [other.choose(request) for request in REQUESTS]
    for node in a.nodes.values():
        assert a.leases_of(node.name) or not [x for x in b.holding.values() if x.grant.node == node.name]
        if desired_node(ledger, node, b.leases_of(node.name)) != node.desired:
            assert node.name in a.touched.nodes, f"nobody will tell {node.name} that it has to look otherwise"
