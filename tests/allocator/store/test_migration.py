"""Migrations: they make the tables that the code declares, on every database, and are applied in order or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine, inspect

from mig_spawner.allocator.store.tables import metadata
from mig_spawner.errors import StoreUnavailable
from tests.allocator.store.place import Place


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


def test_a_database_of_a_newer_version_is_refused(lasting: Place) -> None:
    store = lasting.store()
    lasting.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnavailable, match="or a newer one"):
        store.open()
