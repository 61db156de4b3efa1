"""The statements of the ledger, built once: putting one together costs more than running it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, bindparam, case, delete, func, insert, or_, select, update

from mig_spawner.allocator.store import tables as t
from mig_spawner.allocator.store.function import current_moment, seconds_since_2025

_HOLDING: Final = ("granted", "ready", "active", "releasing")
_queued = t.lease.c.state == "queued"
_by_number = t.lease.c.number

# The transaction

BEGIN: Final = select(current_moment().label("now"), t.meta.c.revision)
NOW: Final = select(current_moment())
CHANGES_SINCE: Final = select(t.change).where(t.change.c.number >= bindparam("since")).order_by(t.change.c.number)
NEWEST_CHANGE: Final = select(t.change.c.number, t.change.c.stamp).order_by(t.change.c.number.desc()).limit(1)
ADD_CHANGE: Final = insert(t.change).returning(t.change.c.number)
DROP_CHANGES: Final = delete(t.change).where(t.change.c.number <= bindparam("up_to"))
NEXT_REVISION: Final = update(t.meta).values(revision=t.meta.c.revision + 1)
_seconds = seconds_since_2025()
RAISE_GENERATION: Final = update(t.meta).values(
    generation=case((t.meta.c.generation < _seconds, _seconds), else_=t.meta.c.generation)
)
NEXT_GENERATION: Final = update(t.meta).values(generation=t.meta.c.generation + 1).returning(t.meta.c.generation)

# Leases

LEASE: Final = select(t.lease).where(t.lease.c.lease_id == bindparam("lease_id"))
OPEN_LEASE: Final = select(t.lease).where(
    t.lease.c.open, t.lease.c.user_id == bindparam("user_id"), t.lease.c.server_name == bindparam("server_name")
)
OPEN_LEASES: Final = select(t.lease).where(t.lease.c.open).order_by(t.lease.c.queued_at, t.lease.c.lease_id)
HOLDING: Final = select(t.lease).where(t.lease.c.state.in_(_HOLDING)).order_by(_by_number)
HOLDING_OF: Final = HOLDING.where(t.lease.c.lease_id.in_(bindparam("keys", expanding=True)))
_in_line: Final = (t.lease.c.priority.desc(), _by_number)
QUEUE: Final = select(t.lease).where(_queued).order_by(*_in_line).execution_options(stream_results=True, yield_per=20)
WAITS_OVER: Final = select(t.lease).where(_queued, t.lease.c.wait_until <= bindparam("now")).order_by(_by_number)
WAITING_SINCE: Final = select(t.lease).where(_queued, t.lease.c.queued_at <= bindparam("since")).order_by(*_in_line)
EARMARKS: Final = select(t.lease.c.earmark, t.lease.c.lease_id).where(_queued, t.lease.c.earmark.is_not(None))
BOUND: Final = select(t.lease).where(_queued, t.lease.c.only_node.is_not(None)).order_by(_by_number)
_ended_well: Final = ("stopped", "expired", "pod-gone", "holder-lost")
HELD: Final = (
    select(t.lease.c.granted_at, t.lease.c.closed_at)
    .where(t.lease.c.state == "closed", t.lease.c.granted_at.is_not(None), t.lease.c.reason.in_(_ended_well))
    .order_by(_by_number.desc())
    .limit(300)
)
AVOIDING: Final = select(t.lease).where(_queued, t.lease.c.avoid != "[]").order_by(_by_number)
_me = t.lease.alias("me")
_not_behind = or_(
    t.lease.c.priority > _me.c.priority,
    and_(t.lease.c.priority == _me.c.priority, _by_number <= _me.c.number),
)
QUEUE_PLACE: Final = (
    select(func.count())
    .select_from(t.lease.join(_me, _not_behind))
    .where(_queued, _me.c.lease_id == bindparam("lease_id"), _me.c.state == "queued")
)
LINE: Final = select(
    func.count().label("length"),
    func.count(t.lease.c.only_node).label("bound"),
    func.count(t.lease.c.earmark).label("earmarked"),
).where(_queued)
"""How many wait, and of how many there is anything to be read."""
COUNTS: Final = select(t.lease.c.state, func.count().label("count")).where(t.lease.c.open).group_by(t.lease.c.state)
ADD_LEASE: Final = insert(t.lease)
MOVE_LEASE: Final = update(t.lease).where(
    t.lease.c.lease_id == bindparam("of_lease"), t.lease.c.state == bindparam("from_state")
)
TOUCH: Final = (
    update(t.lease)
    .where(t.lease.c.lease_id == bindparam("of_lease"), t.lease.c.state == "active")
    .values(seen_at=bindparam("seen"))
)
SET_PEAK: Final = (
    update(t.lease).where(t.lease.c.lease_id == bindparam("of_lease")).values(peak_memory_mib=bindparam("new_peak"))
)
PROGRESS: Final = select(t.lease.c.lease_id, t.lease.c.state).where(t.lease.c.open).order_by(*_in_line)

# What closed leases have held

_was_held = t.lease.c.granted_at.is_not(None)
_closed_after = and_(t.lease.c.closed_at > bindparam("since"), _was_held)
_of_person = or_(
    t.lease.c.user_name == bindparam("person"),
    and_(t.lease.c.user_name == "", t.lease.c.user_id == bindparam("person")),
)
_whose = (t.lease.c.user_id, t.lease.c.user_name, t.lease.c.groups)
CLOSED_SECONDS: Final = (
    select(*_whose, func.sum(t.lease.c.gpu_seconds).label("gpu_seconds")).where(_closed_after).group_by(*_whose)
)
CLOSED_SECONDS_OF: Final = CLOSED_SECONDS.where(_of_person)
CLOSED_EARLY: Final = select(*_whose, t.lease.c.granted_at, t.lease.c.share).where(
    _closed_after, t.lease.c.granted_at < bindparam("since")
)
CLOSED_EARLY_OF: Final = CLOSED_EARLY.where(_of_person)
CLOSED_SPELLS: Final = (
    select(*_whose, t.lease.c.profile, t.lease.c.granted_at, t.lease.c.closed_at, t.lease.c.share)
    .where(_closed_after, t.lease.c.granted_at < bindparam("until"))
    .order_by(t.lease.c.closed_at)
)
CLOSED_SPELLS_OF: Final = CLOSED_SPELLS.where(_of_person)

# Audit

ADD_AUDIT: Final = insert(t.audit)
AUDIT: Final = select(t.audit).order_by(t.audit.c.number)
_last_requeue = (
    select(func.max(t.audit.c.number))
    .where(t.audit.c.lease_id == bindparam("lease_id"), t.audit.c.after == "queued")
    .scalar_subquery()
)
REQUEUED_AT: Final = select(t.audit.c.at).where(t.audit.c.number == _last_requeue)

# Memory slices

HOLD: Final = insert(t.hold)
FREE: Final = delete(t.hold).where(
    t.hold.c.gpu_uuid == bindparam("gpu_uuid"),
    t.hold.c.memory_slice >= bindparam("first"),
    t.hold.c.memory_slice < bindparam("end"),
)
REMNANTS: Final = select(t.remnant).order_by(t.remnant.c.gpu_uuid, t.remnant.c.start)
REMNANTS_ON: Final = REMNANTS.where(t.remnant.c.gpu_uuid.in_(bindparam("keys", expanding=True)))
ADD_REMNANT: Final = insert(t.remnant)
DROP_REMNANT: Final = delete(t.remnant).where(
    t.remnant.c.gpu_uuid == bindparam("gpu_uuid"), t.remnant.c.start == bindparam("first")
)

# Nodes

_node = [column for column in t.node.c if column not in (t.node.c.usage, t.node.c.report)]
NODES: Final = select(*_node).order_by(t.node.c.name)
NODES_OF: Final = NODES.where(t.node.c.name.in_(bindparam("keys", expanding=True)))
USAGE: Final = select(t.node.c.usage).where(t.node.c.name == bindparam("name"))
NODE: Final = select(*_node, t.node.c.report).where(t.node.c.name == bindparam("name"))
REPORTS: Final = select(t.node.c.name, t.node.c.report).where(t.node.c.name.in_(bindparam("keys", expanding=True)))
ADD_NODE: Final = insert(t.node)
SET_REPORT: Final = (
    update(t.node)
    .where(t.node.c.name == bindparam("of_node"))
    .values(
        report=bindparam("new_report"),
        digest=bindparam("new_digest"),
        reported_at=bindparam("new_reported_at"),
        usage=bindparam("new_usage"),
    )
)
SET_DESIRED: Final = (
    update(t.node)
    .where(t.node.c.name == bindparam("of_node"))
    .values(desired=bindparam("new_desired"), generation=bindparam("new_generation"))
)
SET_CORDONED: Final = (
    update(t.node).where(t.node.c.name == bindparam("of_node")).values(cordoned=bindparam("new_cordoned"))
)
GPUS: Final = select(t.gpu)
OWNERS_OF: Final = select(t.gpu).where(t.gpu.c.gpu_uuid.in_(bindparam("keys", expanding=True)))
GPUS_OF: Final = select(t.gpu.c.gpu_uuid).where(t.gpu.c.node == bindparam("of_node"))
DROP_GPU: Final = delete(t.gpu).where(t.gpu.c.gpu_uuid == bindparam("gpu_uuid"))
ADD_GPU: Final = insert(t.gpu)
MOVE_GPU: Final = update(t.gpu).where(t.gpu.c.gpu_uuid == bindparam("of_gpu")).values(node=bindparam("new_node"))
DROP_GPUS: Final = delete(t.gpu).where(t.gpu.c.node == bindparam("of_node"))
DROP_NODE: Final = delete(t.node).where(t.node.c.name == bindparam("of_node"))
GENERATIONS: Final = select(t.node.c.name, t.node.c.generation)

# Pods

PODS: Final = (
    select(t.pod, t.lease.c.gpu_uuid, t.lease.c.start, t.lease.c.size)
    .outerjoin(t.lease, t.lease.c.lease_id == t.pod.c.lease_id)
    .order_by(t.pod.c.uid)
)
PODS_OF: Final = PODS.where(t.pod.c.uid.in_(bindparam("keys", expanding=True)))
ADD_POD: Final = insert(t.pod)
SET_POD: Final = update(t.pod).where(t.pod.c.uid == bindparam("of_pod"))
DROP_POD: Final = delete(t.pod).where(t.pod.c.uid == bindparam("uid"))
PODS_LISTED_AT: Final = select(t.meta.c.pods_listed_at)
SET_PODS_LISTED_AT: Final = update(t.meta).values(pods_listed_at=bindparam("at"))

# Replicas

TURN: Final = select(t.turn.c.taken_at).where(t.turn.c.task == bindparam("task"))
ADD_TURN: Final = insert(t.turn)
SET_TURN: Final = update(t.turn).where(t.turn.c.task == bindparam("of_task")).values(taken_at=bindparam("at"))
