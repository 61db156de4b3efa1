"""What closed leases have held: summed up for quotas, one by one for reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol

from mig_spawner.allocator.store import statement as s
from mig_spawner.allocator.store.base import Past
from mig_spawner.domain.quota import Spell
from mig_spawner.domain.rule import Person


class Connection(Protocol):
    """What executes statements: of SQLAlchemy, or somebody who watches one."""

    def execute(self, statement: Any, parameters: Any = None) -> Any: ...


def closed_seconds(connection: Connection, since: datetime, person: str | None) -> list[tuple[Person, float]]:
    """GPU-seconds after a moment, for each person and set of groups.

    What the index can sum up is summed up by the database: all of a lease that closed after the moment. What little of it was
    before, of those few that were held at that very moment, is taken off again.
    """
    given = {"since": since, "person": person}
    everything = s.CLOSED_SECONDS_OF if person is not None else s.CLOSED_SECONDS
    early = s.CLOSED_EARLY_OF if person is not None else s.CLOSED_EARLY
    found = [(_person(row), float(row.gpu_seconds)) for row in connection.execute(everything, given)]
    found += [
        (_person(row), -(since - row.granted_at).total_seconds() * row.share)
        for row in connection.execute(early, given)
    ]
    return found


def closed_spells(connection: Connection, since: datetime, until: datetime, person: str | None) -> Iterator[Past]:
    """Every closed lease that held something between two moments, oldest first, cut to what lies between."""
    given = {"since": since, "until": until, "person": person}
    for row in connection.execute(s.CLOSED_SPELLS_OF if person is not None else s.CLOSED_SPELLS, given):
        yield Past(_person(row), row.profile, Spell(max(row.granted_at, since), min(row.closed_at, until), row.share))


def _person(row: Any) -> Person:
    return Person(row.user_name or row.user_id, frozenset(json.loads(row.groups)))
