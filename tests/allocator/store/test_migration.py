"""Migrations: they make the tables that the code declares, on every database, and are applied in order or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine, inspect

from mig_spawner.allocator.store import migration
from mig_spawner.allocator.store.sql import database_of
from mig_spawner.allocator.store.tables import metadata
from mig_spawner.errors import StoreUnavailable
from tests.allocator.store.place import Place, sqlite_place
from tests.controlplane.assets import in_ci


def test_migrations_and_tables_agree(lasting: Place) -> None:
    lasting.store()
    assert lasting.url is not None
    engine = create_engine(lasting.url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        made = _shape(engine)
        assert made.pop("alembic_version")
    engine.dispose()
    assert made.keys() == metadata.tables.keys()
    _declared_anew(lasting, made)


def _declared_anew(lasting: Place, made: dict[str, object]) -> None:
    """What alembic does not compare: keys, checks and indexes, beside those of tables that were never migrated."""
    assert lasting.url is not None
    for name in [*made, "alembic_version"]:
        lasting.execute(f"DROP TABLE {name}{' CASCADE' if lasting.kind == 'postgres' else ''}")
    engine = create_engine(lasting.url)
    metadata.create_all(engine)
    declared = _shape(engine)
    engine.dispose()
    assert made == declared


def _shape(engine: Engine) -> dict[str, object]:
    """What each table has, but for the order of its columns."""
    found = inspect(engine)
    reflected = MetaData()
    reflected.reflect(engine)
    return {
        name: {
            "primary key": found.get_pk_constraint(name),
            "foreign keys": sorted(map(str, found.get_foreign_keys(name))),
            "unique": sorted(map(str, found.get_unique_constraints(name))),
            "checks": sorted(str(check) for check in found.get_check_constraints(name)),
            "indexes": sorted(_index(index) for index in found.get_indexes(name)),
            "columns": sorted(f"{c.name} {c.type} {c.nullable} {c.server_default is None}" for c in table.columns),
        }
        for name, table in reflected.tables.items()
    }


def _index(index: Any) -> str:
    where = {key: str(value) for key, value in index.get("dialect_options", {}).items()}
    return f"{index['name']} {index['column_names']} {index['unique']} {where}"


def older(place: Place) -> None:
    """A ledger as the first version made it, with a node in it."""
    store = place.store(opened=False)
    with store.database.engine.begin() as connection:
        migration.upgrade(connection, "0001")
    place.execute(
        "INSERT INTO node (name, desired, cordoned) "
        f"""VALUES ('n1', '{{"generation": 41}}', {'0' if place.kind == 'sqlite' else 'false'})"""
    )


def test_an_older_ledger_is_not_touched_until_it_is_upgraded(lasting: Place) -> None:
    older(lasting)
    store = lasting.store(opened=False)
    with pytest.raises(StoreUnavailable, match="allocator upgrade-db"):
        store.open()
    assert lasting.execute("SELECT version_num FROM alembic_version") == [("0001",)]
    backups: list[str] = []
    assert store.upgrade(backup=lambda _, schema: backups.append(schema)) == ("0001", migration.head())
    assert store.upgrade(backup=lambda _, schema: backups.append(schema)) == (migration.head(), migration.head())
    assert backups == ["0001"]
    store.open()
    with store.reading() as tx:
        assert tx.progress().nodes == {"n1": 41}


def test_what_was_upgraded_is_as_what_was_made_anew(lasting: Place) -> None:
    older(lasting)
    store = lasting.store(opened=False)
    store.upgrade(backup=lambda *_: None)
    made = _shape(store.database.engine)
    del made["alembic_version"]
    _declared_anew(lasting, made)


def test_a_backup_that_fails_stops_the_upgrade(lasting: Place) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailable("no room")

    older(lasting)
    with pytest.raises(StoreUnavailable, match="no room"):
        lasting.store(opened=False).upgrade(backup=fail)
    assert lasting.execute("SELECT version_num FROM alembic_version") == [("0001",)]


@pytest.mark.slow
def test_the_command_backs_up_and_upgrades(lasting: Place, tmp_path: Path) -> None:
    older(lasting)
    first = run(f"--database-url={lasting.url}", f"--backup-path={tmp_path / 'kept'}", folder=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert f"is in {tmp_path / 'kept'}" in first.stdout
    assert f"from the schema 0001 to {migration.head()}" in first.stdout
    again = run(f"--database-url={lasting.url}", folder=tmp_path)
    assert (again.returncode, "already" in again.stdout) == (0, True)
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0
    if lasting.kind == "sqlite":
        kept = sqlite_place(tmp_path, "kept")
        assert kept.execute("SELECT version_num, name FROM alembic_version, node") == [("0001", "n1")]
    else:
        assert (tmp_path / "kept").read_bytes().startswith(b"PGDMP")


@pytest.mark.slow
def test_the_command_says_why_not(tmp_path: Path) -> None:
    done = run(f"--database-url=sqlite:///{tmp_path}/nope/ledger.sqlite", folder=tmp_path)
    assert done.returncode != 0
    assert "The ledger was not upgraded" in done.stderr
    assert "Traceback" not in done.stderr


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mig_spawner.cli", "allocator", "upgrade-db", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_no_backup_is_written_over_another_file(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    database = place.store().database
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(StoreUnavailable, match="No copy"):
        database.back_up(path)
    assert path.read_text() == "mine"
    assert database.backup_name("x").parent == tmp_path
    place.close()


def test_without_pg_dump_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    database = database_of("postgresql://mig:hunter2@127.0.0.1:1/ledger")
    with pytest.raises(StoreUnavailable, match="--no-backup"):
        database.back_up(tmp_path / "dump")


@pytest.mark.skipif(
    shutil.which("pg_dump") is None and not in_ci(os.environ), reason="needs pg_dump: `apt install postgresql-client`"
)
def test_a_pg_dump_that_fails_leaves_nothing_and_shows_no_password(tmp_path: Path) -> None:
    database = database_of("postgresql://mig:hunter2@127.0.0.1:1/ledger")
    with pytest.raises(StoreUnavailable, match="--no-backup") as caught:
        database.back_up(tmp_path / "dump")
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / "dump").exists()


def test_a_database_of_a_newer_version_is_refused(lasting: Place) -> None:
    store = lasting.store()
    lasting.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnavailable, match="or a newer one"):
        store.open()
