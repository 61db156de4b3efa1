"""What a ledger keeps when it is opened again, and what two replicas have in common."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import InvalidRequest
from tests.allocator.store.place import NOW, Place


def test_a_copy_from_before_repeats_no_generation(lasting: Place) -> None:
    """What an old copy of the ledger would number next, agents may have been told before."""
    with lasting.store().writing() as tx:
        now = tx.next_generation()
    lasting.execute("UPDATE meta SET generation = 5")
    with lasting.store().writing() as tx:
        assert tx.next_generation() >= now


def test_a_new_ledger_never_repeats_a_generation(place: Place) -> None:
    """An agent may still quote a generation of a ledger that was lost: a new one begins at the seconds since 2025."""
    with place.store().writing() as tx:
        first = tx.next_generation()
        assert tx.next_generation() == first + 1
        since_2025 = (datetime.now(UTC) - datetime(2025, 1, 1, tzinfo=UTC)).total_seconds()
        assert since_2025 - 60 < first < since_2025 + 60


def test_times_are_the_databases(place: Place) -> None:
    store = place.store()
    with store.reading() as tx:
        assert abs(tx.now - datetime.now(UTC)) < timedelta(minutes=1)
        assert tx.now.tzinfo is UTC
        before = tx.now
    with store.reading() as tx:
        assert tx.now >= before
    with place.store(clock=lambda: NOW).reading() as tx:
        assert tx.now == NOW


def test_secrets_outlive_a_restart_and_differ_by_purpose(lasting: Place) -> None:
    store, again = lasting.store(), lasting.store()
    assert again.installation_id == store.installation_id
    assert again.secret("cookie") == store.secret("cookie") != store.secret("ticket")
    assert len(store.secret("cookie")) == 32


def test_a_second_start_changes_nothing(lasting: Place) -> None:
    revision = lasting.store().revision()
    assert lasting.store().revision() == revision


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://x/y", "SQLite or PostgreSQL"),
        ("sqlite://", "survive a restart"),
    ],
)
def test_a_url_that_names_no_ledger_is_refused(url: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        SQLStore(url)


def test_no_repr_shows_a_password() -> None:
    store = SQLStore("postgresql+psycopg://mig:hunter2@server/ledger")
    assert "hunter2" not in repr(store)
    assert "server" in repr(store)
