"""Proposals in the ledger: read back as they were written, one for a GPU at a time, and every step in the audit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.allocator.store.sql_reshapes import KEPT
from mig_spawner.domain.reshape import Effect, Place, Reshape, ReshapeState, Window, move
from mig_spawner.errors import InvalidTransition

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def proposal(reshape_id: str = "r1", gpu_uuid: str = "GPU-0", node: str = "n1") -> Reshape:
    return Reshape(
        reshape_id=reshape_id,
        node=node,
        gpu_uuid=gpu_uuid,
        state=ReshapeState.PROPOSED,
        proposed_at=NOW,
        changed_at=NOW,
        remove=(Place("1g.10gb", 19, 0, 1), Place("1g.10gb", 19, 1, 1)),
        make=(Place("2g.20gb", 14, 0, 2),),
        before=("1g.10gb@0", "1g.10gb@1", "3g.40gb@4"),
        after=("2g.20gb@0", "3g.40gb@4"),
        standing=True,
        asked="2g.20gb",
        effect=Effect(None, 12.5, 3),
    )


def test_it_is_read_back_as_it_was_written_at_every_step(store: SQLStore) -> None:
    window = Window(NOW + timedelta(hours=1), NOW + timedelta(hours=2))
    steps = [proposal()]
    steps.append(move(steps[-1], ReshapeState.APPROVED, NOW, by="alice", window=window))
    steps.append(move(steps[-1], ReshapeState.APPLYING, NOW, generation=1 << 40))
    steps.append(move(steps[-1], ReshapeState.WITHDRAWING, NOW, reason="no room", end=ReshapeState.FAILED))
    steps.append(move(steps[-1], ReshapeState.FAILED, NOW, reason="no room"))
    with store.writing() as tx:
        assert tx.add_reshape(steps[0], who="allocator")
    for before, after in pairwise(steps):
        with store.writing() as tx:
            tx.move_reshape(before, after, who="alice")
        with store.reading() as tx:
            assert tx.reshape("r1") == after
            assert tx.open_reshapes() == tx.open_reshapes(node="n1") == ([] if after.closed else [after])
            assert tx.ended_reshapes(5) == ([after] if after.closed else [])
            assert tx.open_reshapes(node="n2") == []
    with store.reading() as tx:
        assert tx.reshape("nope") is None
        told = [(c.node, c.who, c.before, c.after) for c in tx.changes(limit=10)[0]][::-1]
        assert "could" not in tx.changes(limit=1)[0][0].why
    assert told == [
        ("n1", "allocator", "", "proposed"),
        ("n1", "alice", "proposed", "approved"),
        ("n1", "alice", "approved", "applying"),
        ("n1", "alice", "applying", "withdrawing"),
        ("n1", "alice", "withdrawing", "failed"),
    ]


def test_a_gpu_has_one_at_a_time(store: SQLStore) -> None:
    with store.writing() as tx:
        assert tx.add_reshape(proposal(), who="a")
        assert not tx.add_reshape(proposal("r2"), who="b")
        assert tx.add_reshape(proposal("r3", "GPU-1"), who="b")
        tx.move_reshape(proposal(), move(proposal(), ReshapeState.REJECTED, NOW), who="a")
        assert tx.add_reshape(proposal("r4"), who="b")
    with store.reading() as tx:
        assert [r.reshape_id for r in tx.open_reshapes()] == ["r3", "r4"]


def test_a_step_from_another_state_is_refused(store: SQLStore) -> None:
    approved = move(proposal(), ReshapeState.APPROVED, NOW)
    with store.writing() as tx:
        tx.add_reshape(proposal(), who="a")
        tx.move_reshape(proposal(), approved, who="a")
    with pytest.raises(InvalidTransition, match="not proposed any more"), store.writing() as tx:
        tx.move_reshape(proposal(), approved, who="b")


def test_what_has_ended_long_ago_is_dropped(store: SQLStore) -> None:
    with store.writing() as tx:
        for number in range(KEPT + 3):
            one = replace(proposal(f"r{number}"))
            assert tx.add_reshape(one, who="a")
            tx.move_reshape(one, move(one, ReshapeState.EXPIRED, NOW), who="a")
        assert tx.add_reshape(proposal("last"), who="a")
        ended = tx.ended_reshapes(1000)
    assert len(ended) == KEPT
    assert ended[0].reshape_id == f"r{KEPT + 2}"
