"""One transaction on the tables: the domain verbs of the port as SQL."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, tuple_
from sqlalchemy.exc import IntegrityError

from mig_spawner.allocator.store import statement as s
from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store import used
from mig_spawner.allocator.store.base import (
    AuditRow,
    Holding,
    Past,
    Pod,
    Progress,
    Remnant,
    Transaction,
)
from mig_spawner.allocator.store.change import Slot
from mig_spawner.allocator.store.codec import claim_from_text, claim_to_text, from_row, grant_of, state_of, to_row
from mig_spawner.allocator.store.past import SQLHistory
from mig_spawner.allocator.store.session import Session
from mig_spawner.allocator.store.sql_nodes import SQLNodes
from mig_spawner.allocator.store.sql_outbox import SQLOutbox
from mig_spawner.allocator.store.sql_plans import SQLPlans
from mig_spawner.allocator.store.sql_post import SQLPost
from mig_spawner.allocator.store.sql_reshapes import SQLReshapes
from mig_spawner.domain.gpu import Placement
from mig_spawner.domain.lease import Active, Closed, Granted, Lease, Queued, Ready, Releasing
from mig_spawner.domain.rule import Person
from mig_spawner.errors import HolderHasLease, InvalidTransition, SliceTaken


class SQLTransaction(SQLNodes, SQLOutbox, SQLPlans, SQLPost, SQLHistory, SQLReshapes, Transaction):
    """The port's `Transaction` on an open connection; the store begins and ends it."""

    def __init__(self, session: Session, *, now: datetime, revision: int, slot: Slot) -> None:
        super().__init__(session, slot)
        self.now = now
        self.revision = revision
        self._counted: Row[Any] | None = None
        self._audits: list[dict[str, object]] = []

    def joined(self, *, now: datetime) -> SQLTransaction:
        """One more in the same transaction of the database."""
        session = Session(self.session.connection, shared=True)
        return SQLTransaction(session, now=now, revision=self.revision, slot=self.slot)

    # Leases

    def lease(self, lease_id: str) -> Lease | None:
        return self._one(s.LEASE, lease_id=lease_id)

    def open_lease(self, user_id: str, server_name: str) -> Lease | None:
        return self._one(s.OPEN_LEASE, user_id=user_id, server_name=server_name)

    def open_leases(
        self,
        *,
        user_id: str | None = None,
        server_name: str | None = None,
        user_name: str | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int | None = None,
    ) -> list[Lease]:
        query = s.OPEN_LEASES.limit(limit)
        wanted = {t.lease.c.user_id: user_id, t.lease.c.server_name: server_name, t.lease.c.user_name: user_name}
        for column, value in wanted.items():
            if value is not None:
                query = query.where(column == value)
        if after is not None:
            query = query.where(tuple_(t.lease.c.queued_at, t.lease.c.lease_id) > tuple_(*after))
        return self._leases(query)

    def holding(self, lease_ids: Collection[str] | None = None) -> list[Holding]:
        leases = [from_row(row) for row in self._those(s.HOLDING, s.HOLDING_OF, lease_ids)]
        return [lease for lease in leases if isinstance(lease, (Granted, Ready, Active, Releasing))]

    def queue(self) -> Generator[Queued, None, None]:
        with self._connection.execute(s.QUEUE) as result:
            for row in result.mappings():
                lease = from_row(row)
                if isinstance(lease, Queued):
                    yield lease

    def waits_over(self) -> list[Queued]:
        return self._queued(s.WAITS_OVER, now=self.now)

    def waiting_since(self, since: datetime) -> list[Queued]:
        return self._queued(s.WAITING_SINCE, since=since)

    def earmarks(self) -> dict[str, str]:
        if not self._line.earmarked:
            return {}
        return {row.earmark: row.lease_id for row in self._connection.execute(s.EARMARKS)}

    def held_seconds(self) -> list[float]:
        rows = self._connection.execute(s.HELD)
        return [(row.closed_at - row.granted_at).total_seconds() for row in rows]

    def avoiding(self) -> list[Queued]:
        return self._queued(s.AVOIDING)

    def bound(self) -> list[Queued]:
        return self._queued(s.BOUND) if self._line.bound else []

    def queue_place(self, lease_id: str) -> tuple[int, int]:
        return int(self._connection.execute(s.QUEUE_PLACE, {"lease_id": lease_id}).scalar_one()), self.queue_length()

    def queue_length(self) -> int:
        return int(self._line.length)

    @property
    def _line(self) -> Row[Any]:
        """What is known of the queue as a whole, until a lease moves."""
        if self._counted is None:
            self._counted = self._connection.execute(s.LINE).one()
        return self._counted

    def counts(self) -> dict[str, int]:
        return {row.state: row[1] for row in self._connection.execute(s.COUNTS)}

    def add(self, lease: Queued, *, who: str, why: str) -> None:
        self._insert(lease)
        self._audit(lease.lease_id, who, None, state_of(lease), why)

    def move(self, before: Lease, after: Lease, *, who: str, why: str) -> None:
        if isinstance(after, Granted) and isinstance(before, Queued):
            with self._connection.begin_nested():
                self._replace(before, after)
                self._take(after)
        else:
            self._replace(before, after)
            if isinstance(after, (Queued, Closed)):
                self._give_back(before)
        self._audit(before.lease_id, who, state_of(before), state_of(after), why)

    def _replace(self, before: Lease, after: Lease) -> None:
        key = {"of_lease": before.lease_id, "from_state": state_of(before)}
        if self._connection.execute(s.MOVE_LEASE, to_row(after) | key).rowcount != 1:
            raise InvalidTransition(f"Lease {before.lease_id} is not {state_of(before)} any more.")

    def exchange(self, steps: Sequence[tuple[Holding, Holding, str]], *, who: str) -> None:
        with self._connection.begin_nested():
            for before, _, _ in steps:
                self._free(before.grant.placement)
            for before, after, _ in steps:
                self._replace(before, after)
                self._take(after)
        for before, after, why in steps:
            self._audit(before.lease_id, who, state_of(before), state_of(after), why)

    def restore(self, lease: Active, *, who: str, why: str) -> None:
        with self._connection.begin_nested():
            self._insert(lease)
            self._take(lease)
        self._audit(lease.lease_id, who, None, state_of(lease), why)

    def note(self, lease: Holding, *, who: str, why: str) -> None:
        self._audit(lease.lease_id, who, state_of(lease), state_of(lease), why)

    def _insert(self, lease: Lease) -> None:
        try:
            self._connection.execute(s.ADD_LEASE, to_row(lease))
        except IntegrityError as error:
            raise HolderHasLease(f"{lease.holder} has an open lease already.") from error

    def _take(self, after: Holding) -> None:
        place = after.grant.placement
        rows = [{"gpu_uuid": place.gpu_uuid, "memory_slice": i, "lease_id": after.lease_id} for i in place.slices]
        try:
            self._connection.execute(s.HOLD, rows)
        except IntegrityError as error:
            raise SliceTaken(
                f"Memory slices {place.start}:{place.size} of {place.gpu_uuid} are held already."
            ) from error

    def _give_back(self, before: Lease) -> None:
        grant = grant_of(before)
        if grant is None:
            return
        if not grant.cut or grant.profile_id is None:
            self._free(grant.placement)
            return
        self._wrote("remnants", grant.placement.gpu_uuid)
        self._connection.execute(
            s.ADD_REMNANT,
            {
                "gpu_uuid": grant.placement.gpu_uuid,
                "start": grant.placement.start,
                "size": grant.placement.size,
                "profile_id": grant.profile_id,
                "node": grant.node,
                "lease_id": before.lease_id,
                "generation": self.next_generation(),
            },
        )

    def _free(self, place: Placement) -> None:
        self._connection.execute(
            s.FREE, {"gpu_uuid": place.gpu_uuid, "first": place.start, "end": place.start + place.size}
        )

    def touch(self, lease: Active) -> None:
        self._wrote("leases", lease.lease_id)
        self._connection.execute(s.TOUCH, {"of_lease": lease.lease_id, "seen": lease.seen_at})

    def put_peak(self, lease_id: str, peak_memory_mib: int) -> None:
        self._wrote("leases", lease_id)
        self._connection.execute(s.SET_PEAK, {"of_lease": lease_id, "new_peak": peak_memory_mib})

    def requeued_at(self, lease_id: str) -> datetime | None:
        self.flush()
        at: datetime | None = self._connection.execute(s.REQUEUED_AT, {"lease_id": lease_id}).scalar_one_or_none()
        return at

    def audit(self, lease_id: str | None = None) -> list[AuditRow]:
        self.flush()
        query = s.AUDIT if lease_id is None else s.AUDIT.where(t.audit.c.lease_id == lease_id)
        rows = self._connection.execute(query)
        return [AuditRow(r.lease_id, r.at, r.who, r.before, r.after, r.why) for r in rows]

    def _audit(self, lease_id: str, who: str, before: str | None, after: str, why: str) -> None:
        self.news = True
        self._counted = None
        self._wrote("leases", lease_id)
        self._audits.append(
            {"lease_id": lease_id, "at": self.now, "who": who, "before": before, "after": after, "why": why}
        )

    def flush(self) -> None:
        """Write what was put off, together."""
        if self._audits:
            rows, self._audits = self._audits, []
            self._connection.execute(s.ADD_AUDIT, rows)

    # What closed leases have held

    def closed_seconds(self, since: datetime, *, person: str | None = None) -> list[tuple[Person, float]]:
        return used.closed_seconds(self._connection, since, person)

    def closed_spells(self, since: datetime, *, until: datetime | None = None, person: str | None = None) -> list[Past]:
        return list(used.closed_spells(self._connection, since, until or self.now, person))

    # What is left of leases

    def remnants(self, gpu_uuids: Collection[str] | None = None) -> list[Remnant]:
        return [
            Remnant(
                r["node"],
                Placement(r["gpu_uuid"], r["start"], r["size"]),
                r["profile_id"],
                r["lease_id"],
                r["generation"],
            )
            for r in self._those(s.REMNANTS, s.REMNANTS_ON, gpu_uuids)
        ]

    def drop_remnant(self, remnant: Remnant) -> None:
        place = remnant.placement
        self._wrote("remnants", place.gpu_uuid)
        self._connection.execute(s.DROP_REMNANT, {"gpu_uuid": place.gpu_uuid, "first": place.start})
        self._free(place)

    def next_generation(self) -> int:
        return int(self._connection.execute(s.NEXT_GENERATION).scalar_one())

    # Pods

    def pods(self, uids: Collection[str] | None = None) -> list[Pod]:
        return [
            Pod(
                uid=r["uid"],
                lease_id=r["lease_id"],
                namespace=r["namespace"],
                name=r["name"],
                phase=r["phase"],
                device_uuid=r["device_uuid"],
                since=r["since"],
                placement=None if r["gpu_uuid"] is None else Placement(r["gpu_uuid"], r["start"], r["size"]),
                claim=claim_from_text(r["claim"]),
                trouble=r["trouble"],
            )
            for r in self._those(s.PODS, s.PODS_OF, uids)
        ]

    def put_pod(self, pod: Pod) -> None:
        self.news = True
        self._wrote("pods", pod.uid)
        row = {
            "lease_id": pod.lease_id,
            "namespace": pod.namespace,
            "name": pod.name,
            "phase": pod.phase,
            "device_uuid": pod.device_uuid,
            "claim": claim_to_text(pod.claim),
            "trouble": pod.trouble,
        }
        if self._connection.execute(s.SET_POD, row | {"of_pod": pod.uid}).rowcount == 0:
            self._connection.execute(s.ADD_POD, row | {"uid": pod.uid, "since": pod.since})

    def drop_pod(self, uid: str) -> None:
        self.news = True
        self._wrote("pods", uid)
        self._connection.execute(s.DROP_POD, {"uid": uid})

    def pods_listed_at(self) -> datetime | None:
        at: datetime | None = self._connection.execute(s.PODS_LISTED_AT).scalar_one()
        return at

    def put_pods_listed_at(self, at: datetime | None) -> None:
        self._connection.execute(s.SET_PODS_LISTED_AT, {"at": at})

    # Replicas

    def take_turn(self, task: str, every: timedelta) -> bool:
        taken_at: datetime | None = self._connection.execute(s.TURN, {"task": task}).scalar_one_or_none()
        if taken_at is None:
            self._connection.execute(s.ADD_TURN, {"task": task, "taken_at": self.now})
            return True
        # A clock that was set back must not stop the timers until it is where it was.
        due = not taken_at <= self.now < taken_at + every
        if due:
            self._connection.execute(s.SET_TURN, {"of_task": task, "at": self.now})
        return due

    # Watching

    def progress(self) -> Progress:
        leases: dict[str, tuple[str, int]] = {}
        waiting = 0
        for lease_id, state in self._connection.execute(s.PROGRESS):
            waiting += state == "queued"
            leases[lease_id] = (state, waiting if state == "queued" else 0)
        nodes = self._connection.execute(s.GENERATIONS)
        return Progress(self.revision, leases, {row.name: int(row.generation) for row in nodes})

    # Telling: `SQLOutbox` and `SQLPost`

    def _execute(self, statement: Any, parameters: Any = None) -> Any:
        return self._connection.execute(statement, parameters)

    def _note_change(self) -> None:
        self.news = True

    def _one(self, query: Select[Any], **parameters: object) -> Lease | None:
        row = self._connection.execute(query, parameters).mappings().one_or_none()
        return None if row is None else from_row(row)

    def _leases(self, query: Select[Any], **parameters: object) -> list[Lease]:
        return [from_row(row) for row in self._connection.execute(query, parameters).mappings()]

    def _queued(self, query: Select[Any], **parameters: object) -> list[Queued]:
        return [lease for lease in self._leases(query, **parameters) if isinstance(lease, Queued)]
