"""Looking back, the same on every database."""

from __future__ import annotations

from mig_spawner.allocator.store.history import Change, Mark
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.domain import lease as transition
from mig_spawner.domain.lease import EndReason
from tests.allocator.store.place import waiting


def _live(store: SQLStore, *lease_ids: str) -> None:
    """Leases that came and were cancelled, with an act on a node after each."""
    for lease_id in lease_ids:
        with store.writing() as tx:
            lease = waiting(lease_id)
            tx.add(lease, who=f"user {lease_id}", why="asked")
            tx.move(lease, transition.cancel(lease, EndReason.CANCELLED, tx.now), who="user root", why="100 % sure_ly")
            tx.note_node(f"node-{lease_id}", who="user root", before="granting", after="cordoned", why="repair")


def _told(changes: list[Change]) -> list[str]:
    return [f"{c.lease_id or c.node} {c.after}" for c in changes]


def test_what_was_done_is_told_newest_first_and_in_pages(store: SQLStore) -> None:
    _live(store, "a", "b", "c")
    with store.reading() as tx:
        whole, end = tx.changes(limit=100)
        pages: list[Change] = []
        mark: Mark | None = None
        while True:
            some, mark = tx.changes(before=mark, limit=2)
            assert len(some) <= 2
            pages += some
            if mark is None:
                break
    assert end is None
    assert _told(whole)[:3] == ["node-c cordoned", "c closed", "c queued"]
    assert len(whole) == 9
    assert _told(pages) == _told(whole)


def test_a_text_finds_whatever_says_it(store: SQLStore) -> None:
    _live(store, "a", "b")
    with store.reading() as tx:
        assert _told(tx.changes(text="USER A", limit=9)[0]) == ["a queued"]
        assert _told(tx.changes(text="node-b", limit=9)[0]) == ["node-b cordoned"]
        assert _told(tx.changes(text="100 % sure_", limit=9)[0]) == ["b closed", "a closed"]
        assert tx.changes(text="%x", limit=9) == ([], None)


def test_ended_leases_are_told_newest_first_and_of_one_person(store: SQLStore) -> None:
    _live(store, "a", "b", "c")
    with store.writing() as tx:
        tx.add(waiting("open"), who="test", why="test")
    with store.reading() as tx:
        whole = [lease.lease_id for lease in tx.closed_leases(limit=9)]
        name = tx.closed_leases(limit=1)[0].holder.user_name
        assert whole == ["c", "b", "a"]
        assert [lease.lease_id for lease in tx.closed_leases(before="c", limit=1)] == ["b"]
        assert [lease.lease_id for lease in tx.closed_leases(user_name=name, limit=9)] == whole
        assert tx.closed_leases(user_name="nobody else", limit=9) == []
        assert tx.closed_leases(before="not there", limit=9) == []
