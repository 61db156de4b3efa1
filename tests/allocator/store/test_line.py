"""Many at once: each is whole for itself, they share commits, and nobody is told anything that is not on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import HolderHasLease, StoreUnavailable
from tests.allocator.store.place import Place, add, waiting

MANY = 12


class _RefusedError(Exception):
    """What a use case raises."""


def in_line(store: SQLStore, *calls: Callable[[], None]) -> list[Future[None]]:
    """Let these stand in line one after another, in this order, and go when all do."""
    line = store._writer._line
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = []
        # It commits with them, so what happens to them happens to it.
        with suppress(StoreUnavailable), store.writing():
            for number, call in enumerate(calls, 1):
                futures.append(pool.submit(call))
                while len(line._waiting) < number:
                    pass
        return futures


@pytest.fixture
def commits(store: SQLStore) -> list[int]:
    """Grows by one with each commit of the database."""
    counted: list[int] = []
    event.listen(store.database.engine, "commit", lambda connection: counted.append(1))
    return counted


def test_who_stands_in_line_shares_a_commit(store: SQLStore, commits: list[int]) -> None:
    revision = store.revision()
    commits.clear()
    done = in_line(store, *(lambda number=number: add(store, f"l{number:02}") for number in range(MANY)))
    assert [future.exception() for future in done] == [None] * MANY
    assert len(commits) < MANY / 2
    assert store.revision() < revision + MANY / 2
    with store.reading() as tx:
        assert [lease.lease_id for lease in tx.open_leases()] == [f"l{number:02}" for number in range(MANY)]


def test_one_that_fails_takes_nobody_along(store: SQLStore) -> None:
    def refused(lease_id: str) -> None:
        with store.writing() as tx:
            tx.add(waiting(lease_id), who="test", why="test")
            raise _RefusedError

    done = in_line(
        store,
        lambda: refused("a"),
        lambda: add(store, "b"),
        lambda: refused("c"),
        lambda: add(store, "d"),
        lambda: add(store, "b"),
        lambda: add(store, "e"),
    )
    kinds = [type(future.exception()) for future in done]
    assert kinds == [_RefusedError, type(None), _RefusedError, type(None), HolderHasLease, type(None)]
    with store.reading() as tx:
        assert [lease.lease_id for lease in tx.open_leases()] == ["b", "d", "e"]
        assert {row.lease_id for row in tx.audit()} == {"b", "d", "e"}


def test_each_sees_what_the_one_before_did(store: SQLStore) -> None:
    lengths: list[int] = []

    def look_and_add(lease_id: str) -> None:
        with store.writing() as tx:
            lengths.append(tx.queue_length())
            tx.add(waiting(lease_id), who="test", why="test")

    for future in in_line(store, *(lambda n=n: look_and_add(f"l{n}") for n in range(MANY))):
        future.result()
    assert lengths == list(range(MANY))


def test_nobody_is_told_yes_when_the_commit_fails(store: SQLStore) -> None:
    def broken(connection: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("disk is full"))

    def commit_fails() -> None:
        event.listen(store.database.engine, "commit", broken)
        add(store, "a")

    done = in_line(store, commit_fails, lambda: add(store, "b"), lambda: _refuse(store))
    event.remove(store.database.engine, "commit", broken)
    assert [type(future.exception()) for future in done] == [StoreUnavailable] * 3
    with store.reading() as tx:
        assert tx.open_leases() == []
    add(store, "c")


def _refuse(store: SQLStore) -> None:
    with store.writing() as tx:
        # A refusal that goes by what never came to be is none.
        if tx.queue_length():
            raise _RefusedError


def test_a_reader_sees_only_what_is_committed(lasting: Place) -> None:
    store = lasting.store()
    with store.writing() as tx:
        tx.add(waiting("a"), who="test", why="test")
        with store.reading() as other:
            assert other.lease("a") is None


def test_a_reader_sees_one_state_throughout(lasting: Place) -> None:
    store = lasting.store()
    with store.reading() as tx:
        assert tx.open_leases() == []
        writer = threading.Thread(target=add, args=(store, "a"))
        writer.start()
        writer.join()
        assert tx.open_leases() == []
    with store.reading() as tx:
        assert len(tx.open_leases()) == 1


def test_two_replicas_take_turns(lasting: Place) -> None:
    one, two = lasting.store(), lasting.store()
    lengths: list[int] = []

    def look_and_add(store: SQLStore, lease_id: str) -> None:
        with store.writing() as tx:
            lengths.append(tx.queue_length())
            tx.add(waiting(lease_id), who="test", why="test")

    with ThreadPoolExecutor(8) as pool:
        for number in range(60):
            pool.submit(look_and_add, (one, two)[number % 2], f"l{number}")
    assert sorted(lengths) == list(range(60))
