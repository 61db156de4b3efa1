"""The tables of the ledger. Migrations make them; a test compares both.

`hold` forbids double booking: its primary key is the memory slice. `lease` keeps every state in flat columns; its partial unique
index forbids a second open lease of a holder.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    false,
    text,
)


class Moment(TypeDecorator[datetime]):
    """A point in time: aware in Python, UTC without zone in the database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

lease = Table(
    "lease",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("lease_id", String(63), nullable=False, unique=True),
    Column("user_id", String(255), nullable=False),
    Column("server_name", String(255), nullable=False),
    Column("user_name", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("open", Boolean, nullable=False),
    Column("request_profile", String(64)),
    Column("request_memory_gb", Float),
    Column("request_device", String(255)),
    Column("alternatives", Text, nullable=False, server_default="[]"),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("queued_at", Moment, nullable=False),
    Column("wait_until", Moment),
    Column("duration_s", Float),
    Column("avoid", Text, nullable=False),
    Column("node", String(255)),
    Column("gpu_uuid", String(255)),
    Column("start", Integer),
    Column("size", Integer),
    Column("profile", String(64)),
    Column("profile_id", Integer),
    Column("model", String(255)),
    Column("memory_mib", Integer),
    Column("multiprocessors", Integer),
    Column("share", Float),
    Column("cut", Boolean),
    Column("generation", Integer),
    Column("granted_at", Moment),
    Column("expires_at", Moment),
    Column("device_uuid", String(255)),
    Column("ready_at", Moment),
    Column("active_at", Moment),
    Column("seen_at", Moment),
    Column("reason", String(16)),
    Column("releasing_at", Moment),
    Column("pod_fate", String(16)),
    Column("closed_at", Moment),
    Column("gpu_seconds", Float),
    Column("choice_number", Integer),
    Column("groups", Text, nullable=False, server_default="[]"),
    Column("choice", String(63), nullable=False, server_default=""),
    Column("only_node", String(255)),
    Column("peak_memory_mib", Integer),
    Column("earmark", String(255)),
    Column("unattended", Boolean, nullable=False, server_default=false()),
    Column("claimed_at", Moment),
    Column("message", Text),
    Column("pick", String(8), nullable=False, server_default="ledger"),
    CheckConstraint("open = (state <> 'closed')", name="open_until_closed"),
    CheckConstraint("(state IN ('queued', 'closed')) OR gpu_uuid IS NOT NULL", name="placed_when_granted"),
    sqlite_autoincrement=True,
)
Index(
    "uq_lease_open_holder",
    lease.c.user_id,
    lease.c.server_name,
    unique=True,
    sqlite_where=text("open"),
    postgresql_where=text("open"),
)
Index("ix_lease_closed_at", lease.c.closed_at)
Index("ix_lease_user_name", lease.c.user_name, lease.c.closed_at)
Index("ix_lease_state", lease.c.state, lease.c.number)
Index("ix_lease_line", lease.c.state, lease.c.priority.desc(), lease.c.number)

_bound = text("only_node IS NOT NULL")
Index("ix_lease_only_node", lease.c.only_node, sqlite_where=_bound, postgresql_where=_bound)

hold = Table(
    "hold",
    metadata,
    Column("gpu_uuid", String(255), primary_key=True),
    Column("memory_slice", Integer, primary_key=True),
    Column("lease_id", String(63), ForeignKey("lease.lease_id"), nullable=False),
)

remnant = Table(
    "remnant",
    metadata,
    Column("gpu_uuid", String(255), primary_key=True),
    Column("start", Integer, primary_key=True),
    Column("size", Integer, nullable=False),
    Column("profile_id", Integer, nullable=False),
    Column("node", String(255), nullable=False),
    Column("lease_id", String(63), ForeignKey("lease.lease_id"), nullable=False),
    Column("generation", Integer, nullable=False),
)

node = Table(
    "node",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("report", Text),
    Column("reported_at", Moment),
    Column("desired", Text, nullable=False),
    Column("cordoned", Boolean, nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("usage", Text),
    Column("digest", String(64)),
)

gpu = Table(
    "gpu",
    metadata,
    Column("gpu_uuid", String(255), primary_key=True),
    Column("node", String(255), ForeignKey("node.name"), nullable=False),
)

pod = Table(
    "pod",
    metadata,
    Column("uid", String(255), primary_key=True),
    Column("lease_id", String(63), nullable=False, index=True),
    Column("namespace", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("phase", String(32), nullable=False),
    Column("device_uuid", String(255)),
    Column("since", Moment, nullable=False),
    Column("claim", Text),
    Column("trouble", Text, nullable=False, server_default=""),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("lease_id", String(63), ForeignKey("lease.lease_id"), nullable=False, index=True),
    Column("at", Moment, nullable=False),
    Column("who", String(300), nullable=False),
    Column("before", String(16)),
    Column("after", String(16), nullable=False),
    Column("why", Text, nullable=False),
    sqlite_autoincrement=True,
)

turn = Table(
    "turn",
    metadata,
    Column("task", String(64), primary_key=True),
    Column("taken_at", Moment, nullable=False),
)
event = Table(
    "event",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("lease_id", String(63), nullable=False),
    Column("lease", Text, nullable=False),
    Column("warns_of", Moment),
    sqlite_autoincrement=True,
)
# Most events warn of nothing, and NULLs are all different.
Index("ix_event_at", event.c.at)
Index("uq_event_warning", event.c.warns_of, event.c.lease_id, unique=True)

webhook = Table(
    "webhook",
    metadata,
    Column("webhook_id", String(63), primary_key=True),
    Column("url", Text, nullable=False),
    Column("kinds", String(255), nullable=False),
    Column("description", String(255), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", String(300), nullable=False),
)

delivery = Table(
    "delivery",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("webhook_id", String(63), ForeignKey("webhook.webhook_id"), nullable=False),
    Column("event_number", Integer, ForeignKey("event.number"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Moment, nullable=False),
    Column("status", Integer),
    Column("error", String(255), nullable=False),
    sqlite_autoincrement=True,
)
Index("uq_delivery_event_number", delivery.c.event_number, delivery.c.webhook_id, unique=True)
Index("ix_delivery_state", delivery.c.state, delivery.c.next_at)
Index("ix_delivery_webhook_id", delivery.c.webhook_id, delivery.c.number)

plan = Table(
    "plan",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("made_at", Moment, nullable=False),
    Column("arrivals", Integer, nullable=False),
    Column("document", Text, nullable=False),
)

act = Table(
    "act",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("node", String(255), nullable=False),
    Column("at", Moment, nullable=False),
    Column("who", String(300), nullable=False),
    Column("before", String(16), nullable=False),
    Column("after", String(16), nullable=False),
    Column("why", Text, nullable=False),
    sqlite_autoincrement=True,
)

reshape = Table(
    "reshape",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("reshape_id", String(63), nullable=False, unique=True),
    Column("gpu_uuid", String(255), nullable=False),
    Column("node", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("open", Boolean, nullable=False),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index(
    "uq_reshape_open",
    reshape.c.gpu_uuid,
    unique=True,
    sqlite_where=text("open"),
    postgresql_where=text("open"),
)

change = Table(
    "change",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("stamp", String(32), nullable=False),
    Column("keys", Text, nullable=False),
    sqlite_autoincrement=True,
)

meta = Table(
    "meta",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("installation_id", String(64), nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("pods_listed_at", Moment),
    Column("events_dropped", Integer, nullable=False, server_default="0"),
    CheckConstraint("id = 1", name="one_row"),
)
