"""What the databases say in words of their own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from mig_spawner.allocator.store.tables import Moment


class current_moment(FunctionElement[Any]):  # noqa: N801  # an SQL function
    """The database's time at this statement. Milliseconds on SQLite, microseconds on PostgreSQL."""

    type = Moment()
    inherit_cache = True


class seconds_since_2025(FunctionElement[int]):  # noqa: N801
    """The same as whole seconds since the first moment of 2025."""

    type = Integer()
    inherit_cache = True


@compiles(current_moment, "sqlite")
def _(element: Any, compiler: Any, **_: Any) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')"


@compiles(current_moment, "postgresql")
def _(element: Any, compiler: Any, **_: Any) -> str:
    return "(clock_timestamp() AT TIME ZONE 'UTC')"


@compiles(seconds_since_2025, "sqlite")
def _(element: Any, compiler: Any, **_: Any) -> str:
    return "(CAST(strftime('%s', 'now') AS INTEGER) - 1735689600)"


@compiles(seconds_since_2025, "postgresql")
def _(element: Any, compiler: Any, **_: Any) -> str:
    return "(CAST(extract(epoch FROM clock_timestamp()) AS INTEGER) - 1735689600)"
