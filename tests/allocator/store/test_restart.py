"""What a ledger keeps when it is opened again, and what two replicas have in common."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from mig_spawner.allocator.store.sql import SQLStore
from mig_spawner.errors import InvalidRequest
from mig_spawner.testing.gpu import find_model
from mig_spawner.wire.node import NodeReport, UsageDocument
from tests.allocator.rig import gpu_document
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


def test_what_a_newer_version_wrote_into_a_report_is_passed_over(lasting: Place) -> None:
    """Somebody goes back to this version, or runs two versions on one ledger while one replica after the other is renewed."""
    gpu = gpu_document(find_model("a100-80gb").gpu("GPU-1"))
    report = NodeReport(
        agent_version="1",
        boot_id="1",
        gpus=(gpu,),
        usage=(UsageDocument(gpu_uuid="GPU-1", device_uuid="GPU-1", gpu_instance_id=None),),
    )
    with lasting.store().writing() as tx:
        tx.put_report("n1", report)
    (row,) = lasting.rows("SELECT report, usage FROM node")
    newer, usage = json.loads(row["report"]), json.loads(row["usage"])
    newer["weather"], newer["gpus"][0]["fans"], newer["gpus"][0]["profiles"][2]["colour"] = "fine", [], None
    usage[0]["noise"] = 3
    lasting.execute(
        f"UPDATE node SET report = '{json.dumps(newer)}', usage = '{json.dumps(usage)}', digest = 'of a newer version'"
    )
    with lasting.store().writing() as tx:
        (seen,) = tx.nodes()
        assert seen.report == report.model_copy(update={"usage": ()})
        assert tx.usage("n1") == report.usage
        tx.put_report("n1", report)
    with lasting.store().reading() as tx:
        assert tx.nodes()[0].report == seen.report


def test_what_an_older_version_did_not_write_into_a_report_has_its_default(lasting: Place) -> None:
    gpu = gpu_document(find_model("a100-80gb").gpu("GPU-1"))
    with lasting.store().writing() as tx:
        tx.put_report("n1", NodeReport(agent_version="1", boot_id="1", gpus=(gpu,)))
    (row,) = lasting.rows("SELECT report FROM node")
    older = json.loads(row["report"])
    del older["problem"], older["gpus"][0]["pci_device_id"]
    lasting.execute(f"UPDATE node SET report = '{json.dumps(older)}', digest = 'of an older version'")
    with lasting.store().reading() as tx:
        (seen,) = tx.nodes()
        assert seen.report is not None
        assert seen.report.gpus == (gpu,)


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
