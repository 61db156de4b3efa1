"""What only PostgreSQL has: a server, which may be away, slow or new."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from mig_spawner.allocator.store.database import postgres as adapter
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import StoreUnavailable
from tests.allocator.store.conftest import place_of
from tests.allocator.store.place import Place, add, waiting
from tests.postgres.fixture import server_or_skip
from tests.postgres.server import Server

pytestmark = pytest.mark.postgres


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from place_of("postgres", request)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that a test may end."""
    with server_or_skip() as server:
        yield server


def test_it_goes_on_after_the_server_was_restarted(own_server: Server) -> None:
    store = SQLStore(own_server.url(own_server.database()))
    store.open()
    add(store, "a")
    own_server.stop(signal.SIGINT)
    with pytest.raises(StoreUnavailable, match="Try again"):
        add(store, "b")
    with pytest.raises(StoreUnavailable):
        store.revision()
    own_server.start()
    # The connections of before are dead; nobody is told.
    add(store, "c")
    own_server.stop(signal.SIGQUIT)
    own_server.start()
    with store.reading() as tx:
        assert [lease.lease_id for lease in tx.open_leases()] == ["a", "c"]
    store.close()


def test_a_server_that_goes_away_in_the_middle_leaves_nothing_half_done(own_server: Server) -> None:
    store = SQLStore(own_server.url(own_server.database()))
    store.open()

    def interrupted() -> None:
        with store.writing() as tx:
            tx.add(waiting("a"), who="test", why="test")
            own_server.stop(signal.SIGQUIT)

    with pytest.raises(StoreUnavailable):
        interrupted()
    own_server.start()
    with store.reading() as tx:
        assert (tx.lease("a"), tx.audit()) == (None, [])
    store.close()


def test_a_replica_waits_for_the_other_and_not_for_ever(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_SESSION", ("SET lock_timeout = '200ms'", *adapter._SESSION[1:]))
    one, two = place.store(), place.store()
    with one.writing(), pytest.raises(StoreUnavailable, match="lock timeout"):
        add(two, "a")
    add(two, "b")


def test_a_replica_that_stands_still_loses_its_turn(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    standing, other = ("SET idle_in_transaction_session_timeout = '200ms'", *adapter._SESSION[2:]), adapter._SESSION
    monkeypatch.setattr(adapter, "_SESSION", standing)
    one = place.store()
    monkeypatch.setattr(adapter, "_SESSION", other)
    two = place.store()
    holds, over = threading.Event(), threading.Event()
    failed: list[str] = []

    def stand_still() -> None:
        try:
            with one.writing() as tx:
                tx.add(waiting("a"), who="test", why="test")
                holds.set()
                over.wait(60)
        except StoreUnavailable as error:
            failed.append(str(error))

    thread = threading.Thread(target=stand_still)
    thread.start()
    assert holds.wait(60)
    add(two, "b")  # waits until the server ends the session of the other
    over.set()
    thread.join()
    assert len(failed) == 1
    with two.reading() as tx:
        assert [lease.lease_id for lease in tx.open_leases()] == ["b"]


def test_commits_are_on_disk_even_where_the_server_does_not_ask_for_it(place: Place) -> None:
    name = place.execute("SELECT current_database()")[0][0]
    place.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    with place.store().database.engine.begin() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    place.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = remote_apply')
    with place.store().database.engine.begin() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "remote_apply"


def test_a_server_that_is_not_there_is_named() -> None:
    store = SQLStore("postgresql+psycopg://mig:hunter2@127.0.0.1:1/ledger")
    with pytest.raises(StoreUnavailable, match="must be reachable") as caught:
        store.open()
    assert "hunter2" not in str(caught.value)
    store.close()


def test_two_that_start_at_once_make_one_schema(place: Place) -> None:
    stores = [place.store(opened=False) for _ in range(3)]
    failed: list[BaseException] = []

    def start(store: SQLStore) -> None:
        try:
            store.open()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=start, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len({store.installation_id for store in stores}) == 1
