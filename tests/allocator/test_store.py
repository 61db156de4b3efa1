"""The promises of the store: constraints, migrations, times."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from mig_spawner.allocator.claim import Claim
from mig_spawner.allocator.store.base import Pod, Transaction
from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.allocator.store.tables import metadata
from mig_spawner.domain import lease as transition
from mig_spawner.domain.fleet import Decision
from mig_spawner.domain.gpu import GPU, Placement
from mig_spawner.domain.lease import Active, EndReason, Granted, Holder, Lease, PodFate, Queued
from mig_spawner.domain.profile import ProfileName
from mig_spawner.domain.request import DeviceRequest, MemoryRequest, Request, SliceRequest, WholeRequest
from mig_spawner.errors import HolderHasLease, InvalidTransition, SliceTaken, StoreUnavailable
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import NodeReport
from tests.allocator.rig import gpu_document

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLStore]:
    store = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    store.open()
    yield store
    store.close()


def _queued(lease_id: str, request: Request | None = None, **changes: object) -> Queued:
    wanted = request or SliceRequest(ProfileName.parse("3g.40gb"))
    lease = Queued(lease_id=lease_id, holder=Holder(lease_id, "s", "n"), request=wanted, queued_at=NOW)
    return replace(lease, **changes)  # type: ignore[arg-type]


def _granted(lease: Queued, start: int = 0, *, cut: bool = True, generation: int = 1, choice: int = 0) -> Granted:
    gpu: GPU = find_model("a100-80gb").gpu("GPU-0")
    profile = gpu.profile(ProfileName.parse("3g.40gb"))
    decision = Decision("n1", gpu, Placement(gpu.gpu_uuid, start, 4), profile, None, cut)
    return transition.grant(lease, decision, generation, NOW, NOW + timedelta(hours=1), choice)


def _add(tx: Transaction, lease: Queued) -> Queued:
    tx.add(lease, who="test", why="test")
    return lease


def _move(tx: Transaction, before: Lease, after: Lease) -> None:
    tx.move(before, after, who="test", why="test")


@pytest.mark.parametrize(
    "request_",
    [SliceRequest(ProfileName.parse("1g.10gb+me")), MemoryRequest(12.5), WholeRequest(), DeviceRequest("MIG-1")],
    ids=["slice", "memory", "whole", "device"],
)
def test_every_state_is_read_back_as_it_was_written(store: SQLStore, request_: Request) -> None:
    queued = _queued(
        "a", request_, avoid=frozenset({"GPU-7"}), wait_until=NOW, duration_s=5.5, alternatives=(request_,), priority=-7
    )
    granted = _granted(queued, choice=1)
    ready = transition.make_ready(granted, "MIG-1", NOW)
    active = transition.activate(ready, NOW)
    releasing = transition.release(active, EndReason.EXPIRED, PodFate.UNKNOWN, NOW)
    closed = transition.close(releasing, NOW + timedelta(seconds=10))
    with store.writing() as tx:
        _add(tx, queued)
    before: Lease = queued
    for after in (granted, ready, active, releasing, closed):
        with store.reading() as tx:
            assert tx.lease("a") == before
        with store.writing() as tx:
            _move(tx, before, after)
        before = after
    with store.reading() as tx:
        assert tx.lease("a") == closed
        assert [row.after for row in tx.audit("a")] == ["queued", "granted", "ready", "active", "releasing", "closed"]


def test_no_memory_slice_is_held_twice(store: SQLStore) -> None:
    with store.writing() as tx:
        one, two = _add(tx, _queued("a")), _add(tx, _queued("b"))
        _move(tx, one, _granted(one, 0))
        with pytest.raises(SliceTaken):
            _move(tx, two, _granted(two, 3))
        # Nothing of the refused step is there, and the transaction goes on.
        assert tx.lease("b") == two
        _move(tx, two, _granted(two, 4))


def test_no_holder_has_two_open_leases(store: SQLStore) -> None:
    with store.writing() as tx:
        _add(tx, _queued("a"))
    with pytest.raises(HolderHasLease), store.writing() as tx:
        _add(tx, replace(_queued("b"), holder=Holder("a", "s")))
    with store.writing() as tx:
        lease = tx.lease("a")
        assert isinstance(lease, Queued)
        _move(tx, lease, transition.cancel(lease, EndReason.CANCELLED, NOW))
        _add(tx, replace(_queued("b"), holder=Holder("a", "s")))


def test_a_step_from_a_state_that_is_over_is_refused(store: SQLStore) -> None:
    with store.writing() as tx:
        lease = _add(tx, _queued("a"))
        _move(tx, lease, transition.cancel(lease, EndReason.CANCELLED, NOW))
        with pytest.raises(InvalidTransition):
            _move(tx, lease, _granted(lease))


def test_what_was_cut_stays_held_until_it_is_dropped(store: SQLStore) -> None:
    with store.writing() as tx:
        cut, standing = _add(tx, _queued("a")), _add(tx, _queued("b"))
        _move(tx, cut, _granted(cut, 0))
        _move(tx, standing, _granted(standing, 4, cut=False))
        for lease_id in "ab":
            granted = tx.lease(lease_id)
            assert isinstance(granted, Granted)
            _move(tx, granted, transition.requeue(granted))
        remnant = tx.remnants()[0]
        assert (len(tx.remnants()), remnant.placement, remnant.lease_id) == (1, Placement("GPU-0", 0, 4), "a")
        waiting = tx.lease("b")
        assert isinstance(waiting, Queued)
        with pytest.raises(SliceTaken):
            _move(tx, waiting, _granted(waiting, 0))
        tx.drop_remnant(remnant)
        _move(tx, waiting, _granted(waiting, 0))


def _active(lease_id: str, start: int) -> Active:
    ready = transition.make_ready(_granted(_queued(lease_id), start), f"MIG-{lease_id}", NOW)
    return transition.activate(ready, NOW)


def test_a_lease_is_restored_whole_or_not_at_all(store: SQLStore) -> None:
    restored = _active("a", 0)
    with store.writing() as tx:
        tx.restore(restored, who="test", why="test")
        with pytest.raises(SliceTaken):
            tx.restore(_active("b", 3), who="test", why="test")
        with pytest.raises(HolderHasLease):
            tx.restore(replace(_active("c", 4), holder=restored.holder), who="test", why="test")
        # The transaction goes on, and nothing of the refused ones is there.
        tx.restore(_active("d", 4), who="test", why="test")
    with store.reading() as tx:
        assert (tx.lease("a"), tx.lease("b"), tx.lease("c")) == (restored, None, None)
        assert [(row.lease_id, row.before, row.after) for row in tx.audit()] == [
            ("a", None, "active"),
            ("d", None, "active"),
        ]


def test_a_note_moves_nothing(store: SQLStore) -> None:
    active = _active("a", 0)
    with store.writing() as tx:
        tx.restore(active, who="test", why="test")
        tx.note(active, who="somebody", why="something")
    with store.reading() as tx:
        row = tx.audit("a")[-1]
        assert (row.who, row.before, row.after, row.why) == ("somebody", "active", "active", "something")
        assert tx.lease("a") == active


def test_what_a_pod_says_is_kept_until_it_says_something_else(store: SQLStore) -> None:
    claim = Claim(
        Holder("1", "s", "n"), Placement("GPU-0", 2, 1), ProfileName.parse("1g.10gb"), "MIG-1", "n1", True, NOW
    )
    pod = Pod("u", "a", "hub", "jupyter-a", "Running", "MIG-1", NOW, claim=claim, trouble="why")
    with store.writing() as tx:
        tx.put_pod(pod)
    for changed in (pod, replace(pod, claim=None), replace(pod, trouble="", claim=replace(claim, expires_at=NOW))):
        with store.writing() as tx:
            tx.put_pod(changed)
        with store.reading() as tx:
            assert tx.pods() == [changed]


def test_a_node_is_forgotten_with_its_gpus(store: SQLStore) -> None:
    gpu = gpu_document(find_model("a100-80gb").gpu("GPU-0"))
    with store.writing() as tx:
        tx.put_report("n1", NodeReport(agent_version="1", boot_id="1", gpus=(gpu,)))
        tx.put_report("n2", NodeReport(agent_version="1", boot_id="1"))
    revision = store.revision()
    with store.writing() as tx:
        tx.drop_node("n1")
    with store.reading() as tx:
        assert ([node.name for node in tx.nodes()], tx.gpu_owners()) == (["n2"], {})
    assert store.revision() == revision + 1


def test_a_copy_from_before_repeats_no_generation(store: SQLStore, tmp_path: Path) -> None:
    """What an old copy of the ledger would number next, agents may have been told before."""
    with store.writing() as tx:
        now = tx.next_generation()
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    connection.execute("UPDATE meta SET generation = 5")
    connection.commit()
    connection.close()
    again = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    again.open()
    with again.writing() as tx:
        assert tx.next_generation() >= now
    again.close()


def test_what_fails_in_the_middle_was_never_there(store: SQLStore) -> None:
    revision = store.revision()

    def fail() -> None:
        with store.writing() as tx:
            _add(tx, _queued("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.reading() as tx:
        assert (tx.lease("a"), tx.audit(), store.revision()) == (None, [], revision)


def test_the_revision_moves_with_every_change(store: SQLStore) -> None:
    first = store.revision()
    with store.writing() as tx:
        tx.queue_length()
    assert store.revision() == first
    with store.writing() as tx:
        _add(tx, _queued("a"))
    assert store.revision() == first + 1


def test_times_are_the_databases(store: SQLStore, tmp_path: Path) -> None:
    with store.reading() as tx:
        assert abs(tx.now - datetime.now(UTC)) < timedelta(minutes=1)
        assert tx.now.tzinfo is UTC
    moved = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}", clock=lambda: NOW)
    moved.open()
    with moved.reading() as tx:
        assert tx.now == NOW
    moved.close()


def test_a_new_ledger_never_repeats_a_generation(tmp_path: Path) -> None:
    """An agent may still quote a generation of a ledger that was lost."""
    old, new = (SQLStore(f"sqlite:///{tmp_path / name}") for name in ("old.sqlite", "new.sqlite"))
    old.open()
    with old.writing() as tx:
        first = tx.next_generation()
        assert tx.next_generation() == first + 1
    new.open()
    with new.writing() as tx:
        assert first <= tx.next_generation() < 1_000_000_000
    old.close()
    new.close()


def test_secrets_outlive_a_restart_and_differ_by_purpose(store: SQLStore, tmp_path: Path) -> None:
    again = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    again.open()
    assert again.installation_id == store.installation_id
    assert again.secret("cookie") == store.secret("cookie") != store.secret("ticket")
    assert len(store.secret("cookie")) == 32
    again.close()


def test_the_queue_keeps_the_order_of_arrival(store: SQLStore) -> None:
    with store.writing() as tx:
        for number in range(50):
            # A clock that goes backwards changes nothing.
            _add(tx, _queued(f"l{number}", queued_at=NOW - timedelta(seconds=number)))
        assert [lease.lease_id for lease in tx.queue()] == [f"l{number}" for number in range(50)]
        assert tx.queue_place("l9") == (10, 50)
        assert tx.queue_place("nope") == (0, 50)


def test_migrations_and_tables_agree(store: SQLStore, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()
    made = sqlite3.connect(tmp_path / "ledger.sqlite")
    declared = sqlite3.connect(":memory:")
    for table in metadata.sorted_tables:
        for element in (table, *table.indexes):
            declared.execute(_ddl(element))
    query = "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name <> 'alembic_version' ORDER BY name"
    assert made.execute(query).fetchall() == declared.execute(query).fetchall()
    made.close()
    declared.close()


def _ddl(element: object) -> str:
    from sqlalchemy import Table
    from sqlalchemy.dialects.sqlite import dialect
    from sqlalchemy.schema import CreateIndex, CreateTable

    create = CreateTable(element) if isinstance(element, Table) else CreateIndex(element)  # type: ignore[arg-type]
    return str(create.compile(dialect=dialect()))


def test_a_second_start_migrates_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        store = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
        store.open()
        store.close()


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = SQLStore(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    store.open()
    store.close()
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnavailable, match="or a newer one"):
        store.open()
    store.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = SQLStore(f"sqlite:///{tmp_path / 'nope' / 'ledger.sqlite'}")
    with pytest.raises(StoreUnavailable, match="folder must exist"):
        store.open()
    store.close()


def test_the_file_is_safe_against_power_loss(store: SQLStore, tmp_path: Path) -> None:
    with store.writing() as tx:
        pragmas = {
            name: tx._connection.exec_driver_sql(f"PRAGMA {name}").scalar()  # type: ignore[attr-defined]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
